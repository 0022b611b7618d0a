//! serve: a static HTTPS file server with hyper, which streams files with `nowait::tokio::File`.
//!
//! ```sh
//! cargo run --release -p nowait-examples --bin serve -- --listen 127.0.0.1:8443 DIRECTORY
//! curl -k -r 0-99 https://127.0.0.1:8443/file
//! ```
//!
//! With TLS, sendfile(2) cannot be used: the process has to read the bytes. Cached bytes are read in the
//! connection's task. Reads of uncached files do not delay other connections.
//!
//! The server supports GET and HEAD, one byte range for each request (RFC 9110: 206, 416, If-Range), ETag,
//! Last-Modified, and 304 for an ETag that the client has. For a directory, it serves `index.html`. A path
//! with `..` is not found. Symbolic links are followed, because the directory's owner made them. Without
//! `--cert` and `--key` (PEM files), it makes a self-signed certificate for localhost.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nowait::tokio::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::io::ReaderStream;

/// The size of a read in bytes.
const PIECE: usize = 64 << 10;
/// The time limit for the TLS handshake and for a request's headers.
const PATIENCE: Duration = Duration::from_secs(10);

type Error = Box<dyn std::error::Error + Send + Sync>;
type Body = BoxBody<Bytes, io::Error>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments = Arguments::parse()?;
    let tls = TlsAcceptor::from(Arc::new(arguments.tls()?));
    let root: Arc<Path> = arguments.root.into();
    let listener = TcpListener::bind(arguments.listen).await?;
    println!("https://{}", listener.local_addr()?);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, tls.clone(), root.clone()));
            }
            // For example out of descriptors. Waits until a connection may have ended.
            Err(error) => {
                eprintln!("serve: accept: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The command line arguments.
struct Arguments {
    root: PathBuf,
    listen: SocketAddr,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Arguments {
    fn parse() -> Result<Arguments, Error> {
        let usage = "usage: serve [--listen ADDRESS:PORT] [--cert FILE --key FILE] DIRECTORY";
        let mut arguments = Arguments {
            root: PathBuf::new(),
            listen: ([127, 0, 0, 1], 8443).into(),
            certificate: None,
            key: None,
        };
        let mut words = std::env::args_os().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(usage);
            match word.to_str() {
                Some("--listen") => arguments.listen = value()?.to_str().ok_or(usage)?.parse()?,
                Some("--cert") => arguments.certificate = Some(value()?.into()),
                Some("--key") => arguments.key = Some(value()?.into()),
                _ if arguments.root.as_os_str().is_empty() => arguments.root = word.into(),
                _ => return Err(usage.into()),
            }
        }
        if !arguments.root.is_dir() {
            return Err(usage.into());
        }
        Ok(arguments)
    }

    fn tls(&self) -> Result<ServerConfig, Error> {
        let (chain, key) = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let chain =
                    CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
                (chain, PrivateKeyDer::from_pem_file(key)?)
            }
            (None, None) => {
                let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
                let made = rcgen::generate_simple_self_signed(names)?;
                let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
                (vec![made.cert.der().clone()], key)
            }
            _ => return Err("--cert and --key must be used together".into()),
        };
        let config = ServerConfig::builder().with_no_client_auth();
        Ok(config.with_single_cert(chain, key)?)
    }
}

/// Serves one connection until its client has no more requests.
async fn connection(stream: TcpStream, tls: TlsAcceptor, root: Arc<Path>) {
    let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, tls.accept(stream)).await else {
        return;
    };
    let service = service_fn(move |request| {
        let root = root.clone();
        async move { Ok::<_, Infallible>(respond(&root, &request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    // Errors are ignored: the client may close the connection at any time.
    let _ = served.await;
}

/// The answer to one request.
async fn respond(root: &Path, request: &Request<Incoming>) -> Response<Body> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = status(StatusCode::METHOD_NOT_ALLOWED);
        let allowed = header::HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(header::ALLOW, allowed);
        return refused;
    }
    let Some(path) = path_in(root, request.uri().path()) else {
        return status(StatusCode::NOT_FOUND);
    };
    let answered = match serve(&path, request).await {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            serve(&path.join("index.html"), request).await
        }
        answered => answered,
    };
    answered.unwrap_or_else(|error| {
        status(match error.kind() {
            io::ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => StatusCode::NOT_FOUND,
            io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput => StatusCode::NOT_FOUND,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        })
    })
}

/// An answer without a body.
fn status(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(nothing());
    *response.status_mut() = code;
    response
}

fn nothing() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

/// The file below `root` that a request's path names; `None` if the path is not valid.
fn path_in(root: &Path, asked: &str) -> Option<PathBuf> {
    let bytes = percent_encoding::percent_decode_str(asked).collect::<Vec<u8>>();
    let mut path = root.to_owned();
    for name in bytes.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return None,
            name if name.contains(&0) => return None,
            name => path.push(std::ffi::OsString::from_vec(name.to_vec())),
        }
    }
    Some(path)
}

/// Answers with a file or the requested part of it.
async fn serve(path: &Path, request: &Request<Incoming>) -> io::Result<Response<Body>> {
    let mut file = File::open(path).await?;
    let metadata = file.metadata().await?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let len = metadata.len();
    let modified = metadata.modified()?;
    // The nanoseconds distinguish two versions that were written within one second.
    let tag = format!(
        "\"{:x}-{:x}-{len:x}\"",
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    let response = Response::builder()
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::ETAG, &tag)
        .header(header::LAST_MODIFIED, httpdate::fmt_http_date(modified))
        .header(header::CONTENT_TYPE, content_type(path));

    let headers = request.headers();
    let has_it = |tags: &str| {
        tags.split(',')
            .any(|one| one.trim() == tag || one.trim() == "*")
    };
    if text(headers, header::IF_NONE_MATCH).is_some_and(has_it) {
        return finish(response.status(StatusCode::NOT_MODIFIED), nothing());
    }
    let asked = if goes_on(headers, &tag, modified) {
        asked_range(headers, len)
    } else {
        Asked::All
    };
    let (response, part) = match asked {
        Asked::All => (response, 0..len),
        Asked::Part(part) => {
            let words = format!("bytes {}-{}/{len}", part.start, part.end - 1);
            let response = response.header(header::CONTENT_RANGE, words);
            (response.status(StatusCode::PARTIAL_CONTENT), part)
        }
        Asked::Beyond => {
            let response = response.header(header::CONTENT_RANGE, format!("bytes */{len}"));
            return finish(
                response.status(StatusCode::RANGE_NOT_SATISFIABLE),
                nothing(),
            );
        }
    };
    let response = response.header(header::CONTENT_LENGTH, part.end - part.start);
    if request.method() == Method::HEAD {
        return finish(response, nothing());
    }
    file.seek(io::SeekFrom::Start(part.start)).await?;
    let bytes = ReaderStream::with_capacity(file.take(part.end - part.start), PIECE);
    let body = StreamBody::new(bytes.map_ok(Frame::data));
    finish(response, BodyExt::boxed(body))
}

fn finish(response: hyper::http::response::Builder, body: Body) -> io::Result<Response<Body>> {
    response.body(body).map_err(io::Error::other)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Returns true if a range may be sent: there is no If-Range header, or it names this version.
fn goes_on(headers: &HeaderMap, tag: &str, modified: SystemTime) -> bool {
    match text(headers, header::IF_RANGE) {
        None => !headers.contains_key(header::IF_RANGE),
        Some(known) => known == tag || known == httpdate::fmt_http_date(modified),
    }
}

/// The requested part of a file.
enum Asked {
    All,
    Part(Range<u64>),
    Beyond,
}

/// The range of a Range header. A header with several ranges or with an invalid one is ignored, which RFC
/// 9110 allows.
fn asked_range(headers: &HeaderMap, len: u64) -> Asked {
    let range = || {
        let (unit, range) = text(headers, header::RANGE)?.split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        // `parse` accepts a sign.
        let digits = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        if !unit.trim().eq_ignore_ascii_case("bytes") || !digits(first) || !digits(last) {
            return None;
        }
        Some((first.parse::<u64>().ok(), last.parse::<u64>().ok()))
    };
    match range() {
        Some((Some(first), Some(last))) if last < first => Asked::All,
        Some((Some(first), _)) if first >= len => Asked::Beyond,
        Some((Some(first), last)) => {
            let end = last.map_or(len, |last| last.saturating_add(1).min(len));
            Asked::Part(first..end)
        }
        Some((None, Some(suffix))) if suffix == 0 || len == 0 => Asked::Beyond,
        Some((None, Some(suffix))) => Asked::Part(len.saturating_sub(suffix)..len),
        Some((None, None)) | None => Asked::All,
    }
}

/// The Content-Type of a file, from the extension of its name.
fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|e| e.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("txt" | "md") => "text/plain; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("mp4") => "video/mp4",
        _ => "application/octet-stream",
    }
}
