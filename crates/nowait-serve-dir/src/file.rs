//! An open file of a response: its metadata, and the stream of its bytes.

use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};
use tower_http::services::fs;

use crate::metadata::{FIELDS, Metadata};

/// A file that [`NowaitBackend`](crate::NowaitBackend) has opened: a [`nowait::tokio::File`].
#[derive(Debug)]
pub struct File(nowait::tokio::File);

impl File {
    pub(crate) fn new(file: nowait::tokio::File) -> File {
        File(file)
    }
}

impl AsyncRead for File {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        dst: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, dst)
    }
}

impl AsyncSeek for File {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        Pin::new(&mut self.0).start_seek(to)
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Pin::new(&mut self.0).poll_complete(cx)
    }
}

impl fs::File for File {
    type Metadata = Metadata;
    type MetadataFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Metadata>> + Send + 'a>>;

    fn metadata(&self) -> Self::MetadataFuture<'_> {
        Box::pin(async move { Ok(Metadata::new(self.0.statx(FIELDS).await?)) })
    }
}
