//! The servers in this process: hyper on a tokio runtime of their own. All but those of ServeDir
//! have the same handler, and differ only in how it reads the file.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::CONTENT_LENGTH;
use hyper::server::conn::http1;
use hyper::service::{HttpService, Service, service_fn};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_util::io::ReaderStream;
use tower_http::services::ServeDir;
use tower_http::services::fs::{Backend, DefaultServeDirFallback};

use super::contender::Name;
use super::content::{API, API_ANSWER};
use crate::harness::tick::{self, Tick};

/// The size in bytes of one read of a stream, as in ServeDir.
const PIECE: usize = 64 << 10;
/// The time that blocking reads get to end when the server does.
const PATIENCE: Duration = Duration::from_secs(10);

type Content = UnsyncBoxBody<Bytes, io::Error>;

/// A server in this process. Dropping it ends it.
pub struct Inside {
    pub address: SocketAddr,
    /// The timer that the server's runtime serves.
    pub tick: Arc<Tick>,
    runtime: Option<Runtime>,
}

impl Inside {
    /// Starts a server of the files in `root`.
    pub fn start(name: Name, root: &Path, threads: usize) -> io::Result<Inside> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let address = listener.local_addr()?;
        let tick = Arc::new(Tick::new()?);
        runtime.spawn(tick::on_tokio(tick.clone()));
        match name {
            Name::ServeDir => {
                runtime.spawn(accept(listener, with_api(ServeDir::new(root))));
            }
            Name::ServeDirNowait => {
                let files = nowait_serve_dir::serve_dir(root);
                runtime.spawn(accept(listener, with_api(files)));
            }
            _ => {
                let root: Arc<Path> = root.into();
                let service = service_fn(move |request| answer(name, root.clone(), request));
                runtime.spawn(accept(listener, service));
            }
        }
        Ok(Inside {
            address,
            tick,
            runtime: Some(runtime),
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(PATIENCE);
        }
    }
}

/// A service of ServeDir that also answers [`API`].
fn with_api<B: Backend>(
    files: ServeDir<DefaultServeDirFallback, B>,
) -> impl HttpService<Incoming, ResBody = Content, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    service_fn(move |request: Request<Incoming>| {
        let files = TowerToHyperService::new(files.clone());
        async move {
            if request.uri().path() == API {
                return Ok(Response::new(whole(API_ANSWER.into())));
            }
            let Ok(response) = files.call(request).await;
            Ok(response.map(BodyExt::boxed_unsync))
        }
    })
}

/// Serves connections until the runtime ends.
async fn accept<S>(listener: TcpListener, service: S) -> io::Result<()>
where
    S: HttpService<Incoming, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    S::ResBody: Body<Data = Bytes> + Send + 'static,
    <S::ResBody as Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service.clone());
        // An error ends the connection, which the client reports.
        tokio::spawn(connection);
    }
}

/// The answer to one request: that of [`API`], or the file of that name.
async fn answer(
    name: Name,
    root: Arc<Path>,
    request: Request<Incoming>,
) -> Result<Response<Content>, Infallible> {
    if request.uri().path() == API {
        return Ok(Response::new(whole(API_ANSWER.into())));
    }
    let path = root.join(request.uri().path().trim_start_matches('/'));
    Ok(match content(name, path).await {
        Ok((length, content)) => {
            let mut response = Response::new(content);
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
            response
        }
        Err(error) => {
            let mut response = Response::new(whole(error.to_string().into()));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
    })
}

/// The length of a file, and its bytes.
async fn content(name: Name, path: PathBuf) -> io::Result<(u64, Content)> {
    let bytes = match name {
        Name::Nowait => {
            let file = nowait::tokio::File::open(path).await?;
            let length = file.metadata().await?.len();
            return Ok((length, stream(file, length)));
        }
        Name::TokioFs => {
            let file = tokio::fs::File::open(path).await?;
            let length = file.metadata().await?.len();
            return Ok((length, stream(file, length)));
        }
        Name::NowaitRead => nowait::tokio::read(path).await?,
        Name::SpawnBlocking => tokio::task::spawn_blocking(|| std::fs::read(path)).await??,
        _ => std::fs::read(path)?,
    };
    Ok((bytes.len() as u64, whole(bytes)))
}

fn whole(bytes: Vec<u8>) -> Content {
    Full::from(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn stream(file: impl AsyncRead + Send + 'static, length: u64) -> Content {
    let bytes = ReaderStream::with_capacity(file.take(length), PIECE);
    StreamBody::new(bytes.map_ok(Frame::data)).boxed_unsync()
}
