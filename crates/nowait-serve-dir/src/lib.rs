//! `ServeDir` of tower-http on nowait: static files for axum, hyper and every other server of the
//! tower family.
//!
//! ```
//! # async fn example() {
//! let app: axum::Router = axum::Router::new()
//!     .route("/api", axum::routing::get(|| async { "answer" }))
//!     .fallback_service(nowait_serve_dir::serve_dir("public"));
//! # let _ = app;
//! # }
//! ```
//!
//! [`serve_dir`] returns [`ServeDir`] with another [`Backend`]. All of its methods, responses and
//! errors are those of tower-http. The difference is the thread that makes the system calls:
//!
//! - tokio's backend sends each of them to the blocking pool: metadata, open, fstat, and one read
//!   for each 64 KiB.
//! - [`NowaitBackend`] looks up, opens and reads a cached file in the task that polls the request.
//!   The rest goes to an engine of nowait, and the task waits for it without blocking its thread.
//!   The functions of [`nowait::tokio`] document which calls the task makes itself: `File::open_and_read`
//!   and `statx`.
//!
//! The page cache is the only cache. A file that is replaced, truncated or removed is served
//! accordingly in the next response.

mod backend;
mod file;
mod metadata;

use std::path::Path;

#[cfg(doc)]
use tower_http::services::fs::Backend;
use tower_http::services::fs::{DefaultServeDirFallback, ServeDir};

pub use backend::NowaitBackend;
pub use file::File;
pub use metadata::Metadata;

/// A service of the files in a directory and its subdirectories: `ServeDir::new` on
/// [`NowaitBackend`].
///
/// The files are read on [the process's engine](nowait::Engine::process), which is made with the
/// first of them. If that fails, the response is 500 Internal Server Error.
///
/// ```
/// use http::{Request, StatusCode};
/// use http_body_util::{BodyExt, Empty};
/// use tower::ServiceExt;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let service = nowait_serve_dir::serve_dir(".").precompressed_gzip();
/// let request = Request::get("/Cargo.toml").header("range", "bytes=0-8").body(Empty::<&[u8]>::new())?;
/// let response = service.oneshot(request).await?;
/// assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT);
/// assert_eq!(response.into_body().collect().await?.to_bytes(), "[package]");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve_dir(path: impl AsRef<Path>) -> ServeDir<DefaultServeDirFallback, NowaitBackend> {
    ServeDir::with_backend(path, NowaitBackend::new())
}
