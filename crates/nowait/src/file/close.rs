//! Closing a file, with the result of close(2).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::File;
use crate::engine::SpawnBlocking;
use crate::error::Result;
use crate::handle::Handle;

impl File {
    /// Closes the file, and returns the error of close(2). Dropping a file discards it.
    ///
    /// Some filesystems report only in close(2) that written data was lost: NFS, FUSE, SMB, and others
    /// with a quota (ENOSPC, EDQUOT, EIO). A worker calls close(2), because such a filesystem waits
    /// for a server. If the file was opened for reading only, on a filesystem where close(2) does not
    /// wait, the future is ready at the first poll. If the future is dropped, the file is closed
    /// nevertheless.
    ///
    /// If there are clones of the file, or operations in flight, their descriptor stays open until the
    /// last of them is dropped. If close(2) may fail, it is then called for a duplicate of the
    /// descriptor: it has the same errors, and as each close(2) it releases the record locks of the
    /// process (fcntl(2)).
    ///
    /// Written data may not be on the device: see [`sync_all`](File::sync_all).
    ///
    /// # Errors
    /// The errors of close(2). The file is closed also after an error, such as EINTR; close(2) is not
    /// repeated. The errors of dup(2), if there are clones or operations in flight. Those of
    /// [`Engine::spawn_blocking`](crate::Engine::spawn_blocking).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("file");
    /// let file = nowait::OpenOptions::new().write(true).create(true).blocking_open(&path)?;
    /// pollster::block_on(async {
    ///     file.write_all_at("hello", 0).await.into_result()?;
    ///     file.close().await
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close(self) -> Close {
        let (handle, engine) = self.into_handle();
        Close(match handle.closes_at_once() {
            true => Closing::Here(Some(handle)),
            false => Closing::Worker(engine.spawn_blocking(move || handle.close())),
        })
    }

    /// Closes the file, and returns the error of close(2). Blocks. See [`close`](File::close).
    ///
    /// # Errors
    /// The errors of close(2), or of dup(2), as for [`close`](File::close).
    pub fn blocking_close(self) -> Result<()> {
        self.into_handle().0.close()
    }
}

/// The future of [`File::close`].
#[derive(Debug)]
#[must_use = "the error of close(2) is lost without a poll"]
pub struct Close(Closing);

#[derive(Debug)]
enum Closing {
    /// The thread that polls calls close(2). `None` afterwards.
    Here(Option<Handle>),
    Worker(SpawnBlocking<Result<()>>),
}

impl Future for Close {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut self.get_mut().0 {
            Closing::Here(handle) => Poll::Ready(handle.take().map_or(Ok(()), Handle::close)),
            Closing::Worker(call) => {
                let called = ready!(Pin::new(call).poll(cx));
                Poll::Ready(called.and_then(|closed| closed))
            }
        }
    }
}
