//! serve: a static HTTPS file server: hyper, tower-http's `ServeDir`, and nowait below it.
//!
//! ```sh
//! cargo run --release -p nowait-examples --bin serve -- --listen 127.0.0.1:8443 DIRECTORY
//! curl -k -r 0-99 https://127.0.0.1:8443/file
//! ```
//!
//! With TLS, sendfile(2) cannot be used: the process has to read the bytes. Cached bytes are read in the
//! connection's task. Reads of uncached files do not delay other connections.
//!
//! `ServeDir` documents the responses: GET and HEAD, one byte range for each request, ETag and Last-Modified
//! with their conditions. For a directory, it serves `index.html`. `if_range.rs` adds If-Range. Symbolic
//! links are followed, because the directory's owner made them. Without `--cert` and `--key` (PEM files), the
//! server makes a self-signed certificate for localhost. `--http` serves without TLS. `--demo` makes files in
//! the directory, requests them all the time, and shows the latencies at `/demo`.

mod arguments;
mod demo;
mod if_range;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use nowait_serve_dir::{NowaitBackend, serve_dir};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower_http::services::ServeDir;
use tower_http::services::fs::DefaultServeDirFallback;

use arguments::Arguments;
use demo::Demo;

/// The time limit for the TLS handshake and for a request's headers.
const PATIENCE: Duration = Duration::from_secs(10);

type Error = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, io::Error>;
type Files = ServeDir<DefaultServeDirFallback, NowaitBackend>;

/// The answers to all requests.
#[derive(Clone)]
struct Site {
    files: Files,
    demo: Option<Arc<Demo>>,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments = Arguments::parse()?;
    let tls = arguments.tls()?.map(|tls| TlsAcceptor::from(Arc::new(tls)));
    let demo = match arguments.demo {
        true => Some(Demo::start(&arguments.root)?),
        false => None,
    };
    let listener = TcpListener::bind(arguments.listen).await?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let page = if demo.is_some() { "/demo" } else { "" };
    println!("{scheme}://{}{page}", listener.local_addr()?);
    let site = Site {
        files: serve_dir(arguments.root),
        demo,
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, tls.clone(), site.clone()));
            }
            // For example out of descriptors. Waits until a connection may have ended.
            Err(error) => {
                eprintln!("serve: accept: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Serves one connection until its client has no more requests.
async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, site: Site) {
    match tls {
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, tls.accept(stream)).await {
                answer(stream, site).await;
            }
        }
        None => answer(stream, site).await,
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin + Send, site: Site) {
    let service = service_fn(move |request| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(site.respond(request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    // Errors are ignored: the client may close the connection at any time.
    let _ = served.await;
}

impl Site {
    async fn respond(self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        if let Some(page) = self.demo.and_then(|demo| demo.respond(path)) {
            return page;
        }
        let response = if_range::respond(self.files, request.map(drop)).await;
        response.map(BodyExt::boxed_unsync)
    }
}
