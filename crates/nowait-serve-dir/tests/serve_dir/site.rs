//! A directory of files to serve, and requests for them.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use http::header::HeaderMap;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use tower::{Service, ServiceExt};
use tower_http::services::ServeDir;
use tower_http::services::fs::{Backend, DefaultServeDirFallback, ServeFileSystemResponseBody};

/// The bytes of a request: it has none.
pub type NoBody = Empty<&'static [u8]>;

/// A directory with files of all kinds. Its parent has a file `secret`.
pub struct Site {
    dir: tempfile::TempDir,
}

/// The length of the file `large`: several reads of ServeDir, and a part of one.
pub const LARGE: usize = 5_000_001;

/// The modification time of all files, in seconds since 1970.
pub const MODIFIED: u64 = 1_000_000_000;

pub fn large() -> Vec<u8> {
    let byte = |i: u64| (i ^ (i >> 8) ^ (i >> 16)) as u8;
    (0..LARGE as u64).map(byte).collect()
}

impl Site {
    pub fn new() -> Site {
        Site::within(env!("CARGO_TARGET_TMPDIR").as_ref())
    }

    /// A site on the filesystem of this directory.
    pub fn within(parent: &Path) -> Site {
        let dir = tempfile::tempdir_in(parent).unwrap();
        let site = Site { dir };
        fs::create_dir_all(site.root().join("sub/empty")).unwrap();
        fs::write(site.dir.path().join("secret"), "secret").unwrap();
        for (name, content) in [
            ("text.txt", &b"plain"[..]),
            ("text.txt.gz", b"gzip"),
            ("text.txt.br", b"brotli"),
            ("text.txt.zz", b"deflate"),
            ("text.txt.zst", b"zstd"),
            ("few.txt", b"few"),
            ("few.txt.gz", b"few gzip"),
            ("noext", b"no extension"),
            ("noext.br", b"no extension brotli"),
            ("only.txt.gz", b"only gzip"),
            ("page.html", b"<p>page"),
            ("empty", b""),
            ("with space.txt", b"space"),
            ("日本.txt", "本".as_bytes()),
            (".hidden", b"hidden"),
            ("sub/index.html", b"<p>index"),
            ("sub/style.css", b"p {}"),
        ] {
            site.write(name, content);
        }
        site.write("large", &large());
        site
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Writes a file that was modified at [`MODIFIED`].
    pub fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).unwrap();
        let file = fs::File::options()
            .write(true)
            .open(self.path(name))
            .unwrap();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED);
        file.set_modified(modified).unwrap();
    }

    /// Evicts a file from the page cache.
    pub fn evict(&self, name: &str) {
        slowdisk::evict(&fs::File::open(self.path(name)).unwrap()).unwrap();
    }

    pub fn serve<B: Backend>(&self, backend: B) -> ServeDir<DefaultServeDirFallback, B> {
        ServeDir::with_backend(self.root(), backend)
    }
}

/// A complete response.
#[derive(Debug, PartialEq)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// The error that ended the body.
    pub error: Option<std::io::ErrorKind>,
}

impl Answer {
    /// The value of a header, or "" if it is absent.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    /// The status code and the body as text.
    pub fn text(&self) -> (u16, &str) {
        assert_eq!(self.error, None);
        let body = std::str::from_utf8(&self.body).unwrap();
        (self.status.as_u16(), body)
    }
}

/// Makes a request.
pub fn request(method: Method, path: &str, headers: &[(&str, &str)]) -> Request<NoBody> {
    let mut request = Request::new(NoBody::new());
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap();
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().unwrap();
        request.headers_mut().append(name, value.parse().unwrap());
    }
    request
}

/// Sends a request, and returns the response with its body unread.
pub async fn begin<S>(
    service: &S,
    request: Request<NoBody>,
) -> Response<ServeFileSystemResponseBody>
where
    S: Service<
            Request<NoBody>,
            Response = Response<ServeFileSystemResponseBody>,
            Error = Infallible,
        > + Clone,
{
    let Ok(response) = service.clone().oneshot(request).await;
    response
}

/// Reads the body of a response.
pub async fn finish(response: Response<ServeFileSystemResponseBody>) -> Answer {
    let (head, mut content) = response.into_parts();
    let (mut body, mut error) = (Vec::new(), None);
    while let Some(frame) = content.frame().await {
        match frame {
            Ok(frame) => body.extend_from_slice(&frame.into_data().unwrap()),
            Err(found) => error = Some(found.kind()),
        }
    }
    Answer {
        status: head.status,
        headers: head.headers,
        body,
        error,
    }
}

/// Sends a request, and returns the response with its body.
pub async fn ask<S>(service: &S, request: Request<NoBody>) -> Answer
where
    S: Service<
            Request<NoBody>,
            Response = Response<ServeFileSystemResponseBody>,
            Error = Infallible,
        > + Clone,
{
    finish(begin(service, request).await).await
}

/// Sends a GET request.
pub async fn get<S>(service: &S, path: &str, headers: &[(&str, &str)]) -> Answer
where
    S: Service<
            Request<NoBody>,
            Response = Response<ServeFileSystemResponseBody>,
            Error = Infallible,
        > + Clone,
{
    ask(service, request(Method::GET, path, headers)).await
}
