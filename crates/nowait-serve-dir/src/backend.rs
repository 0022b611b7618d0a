//! The backend: opening files and asking for metadata, by path.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;

use tower_http::services::fs::Backend;

use crate::file::File;
use crate::metadata::{FIELDS, Metadata};

/// The most bytes of a file that the worker that opens it reads, too.
const SMALL: u64 = 64 << 10;

/// A [`Backend`] of `ServeDir` that reads files with [`nowait::tokio`], on the process's engine.
///
/// ```
/// use nowait_serve_dir::NowaitBackend;
/// use tower_http::services::ServeDir;
///
/// let service = ServeDir::with_backend("public", NowaitBackend::new()).with_buf_chunk_size(256 << 10);
/// # let _ = service;
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct NowaitBackend;

impl NowaitBackend {
    /// The backend. It has no settings, and opens nothing yet.
    pub fn new() -> NowaitBackend {
        NowaitBackend
    }
}

type Answer<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

impl Backend for NowaitBackend {
    type File = File;
    type Metadata = Metadata;
    type OpenFuture = Answer<File>;
    type MetadataFuture = Answer<Metadata>;

    fn open(&self, path: PathBuf) -> Answer<File> {
        Box::pin(async move {
            let (file, metadata) = nowait::tokio::File::open_and_read(path, SMALL).await?;
            Ok(File::new(file, Metadata::new(metadata)))
        })
    }

    fn metadata(&self, path: PathBuf) -> Answer<Metadata> {
        Box::pin(async move {
            let metadata = nowait::tokio::statx(path, FIELDS).await?;
            Ok(Metadata::new(metadata))
        })
    }
}
