//! An open file of a response: its metadata, and the stream of its bytes.

use std::future::Ready;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{self, Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeek, ReadBuf, Take};
use tower_http::services::fs::{self, Metadata as _};

use crate::metadata::Metadata;

/// A file that [`NowaitBackend`](crate::NowaitBackend) has opened: a [`nowait::tokio::File`].
///
/// Its stream ends at the size in its metadata, which is the length of the response, and is not read for the end of
/// the file. So a file that grows makes no response longer.
#[derive(Debug)]
pub struct File {
    file: Take<nowait::tokio::File>,
    metadata: Metadata,
    /// A seek has begun and not ended.
    is_seeking: bool,
}

impl File {
    pub(crate) fn new(file: nowait::tokio::File, metadata: Metadata) -> File {
        let file = file.take(metadata.len());
        File {
            file,
            metadata,
            is_seeking: false,
        }
    }
}

impl AsyncRead for File {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        dst: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_read(cx, dst)
    }
}

impl AsyncSeek for File {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        Pin::new(self.file.get_mut()).start_seek(to)?;
        self.is_seeking = true;
        Ok(())
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let position = task::ready!(Pin::new(self.file.get_mut()).poll_complete(cx));
        // Without a seek, it is the result of the last one.
        let is_sought = std::mem::take(&mut self.is_seeking);
        if let (true, Ok(position)) = (is_sought, &position) {
            let left = self.metadata.len().saturating_sub(*position);
            self.file.set_limit(left);
        }
        Poll::Ready(position)
    }
}

impl fs::File for File {
    type Metadata = Metadata;
    type MetadataFuture<'a> = Ready<io::Result<Metadata>>;

    fn metadata(&self) -> Self::MetadataFuture<'_> {
        std::future::ready(Ok(self.metadata))
    }
}
