//! File: positional reads and writes on an open file, as futures and as blocking calls.
//!
//! The futures need no runtime: the engine's owner or a worker wakes them. A read that the page
//! cache serves is ready at the first poll, without an allocation or a lock. Dropping a future at
//! any point is safe: the operation keeps the memory that the kernel may still touch until it is
//! complete.

mod close;
mod keep_cache;
mod open;
mod open_and_read;
mod open_cached;
mod open_regular;
mod read_at;
mod reopen;
mod sync;
mod transfer;
mod vectored_at;
mod write_at;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use close::Close;
pub use open::{Open, OpenOptions};
pub use open_and_read::OpenedFile;
#[cfg(feature = "tokio")]
pub(crate) use open_and_read::with_contents;
pub use read_at::ReadAt;
pub use reopen::reopen;
pub use sync::SyncFile;
pub use write_at::WriteAt;

#[cfg(feature = "tokio")]
pub(crate) use open_cached::open_cached;
pub(crate) use open_cached::{OpenedToRead, open_cached_regular};
pub(crate) use open_regular::{hold_regular, open_held_regular};

use keep_cache::{Evicts, KeepCache};
use transfer::Parts;

use crate::buffer::{IoBuf, IoBufMut, UninitSlice};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::op::Fsync;
use crate::read::blocking::{fill_space, refused};
use crate::read::{Plan, Recent};
use crate::sys::retry;
use crate::sys::{self, rw};
use nowait_residency::{Probe, Reason};

/// An open file on an engine. It is `Send`, `Sync` and cheap to clone. Clones refer to the same
/// open file.
///
/// Dropping the last clone closes the file, and discards the error of close(2). After writes, call
/// [`close`](File::close), or [`sync_all`](File::sync_all).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("file");
/// let file = nowait::OpenOptions::new().read(true).write(true).create(true).blocking_open(&path)?;
/// pollster::block_on(async {
///     file.write_all_at("hello", 0).await.into_result()?;
///     file.sync_data().await?;
///     let (n, buf) = file.read_at(Vec::with_capacity(64), 0).await.into_result()?;
///     assert_eq!((n, &buf[..]), (5, &b"hello"[..]));
///     Ok::<(), nowait::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct File {
    handle: Handle,
    engine: Engine,
    keep_cache: Option<Arc<KeepCache>>,
}

impl File {
    /// Converts an open descriptor (a `std::fs::File`, for example), on the given engine.
    ///
    /// # Errors
    /// The errors of fstat(2), fstatfs(2) or fcntl(2).
    pub fn from_fd(fd: impl Into<OwnedFd>, engine: &Engine) -> Result<File> {
        // The engine's mode is set on the handle, because a strict file is set up for its mode.
        let handle = Handle::with(fd.into(), None, Some(engine.policy().mode))?;
        Ok(File::of(handle, engine.clone()))
    }

    /// Creates a file on this engine from a handle, such as one of a set of registered files
    /// ([`FileSet::insert`](crate::engine::FileSet::insert)).
    pub fn from_handle(handle: &Handle, engine: &Engine) -> File {
        File::of(handle.clone(), engine.clone())
    }

    /// Reads into `buffer` from `offset` on. The count is less than the buffer's capacity only at
    /// the end of the file.
    ///
    /// As with pread(2), the file's own position does not move.
    pub fn read_at<B: IoBufMut>(&self, buffer: B, offset: u64) -> ReadAt<'_, B> {
        ReadAt::new(self.parts(), buffer, offset, false)
    }

    /// Fills `buffer` from `offset` on. Fails with [`ErrorKind::UnexpectedEof`] if the file ends
    /// earlier.
    pub fn read_exact_at<B: IoBufMut>(&self, buffer: B, offset: u64) -> ReadAt<'_, B> {
        ReadAt::new(self.parts(), buffer, offset, true)
    }

    /// Reads into borrowed memory from `offset` on. Blocks. The count is less than the length only
    /// at the end of the file. This is pread(2), continued after short reads. It is the fastest
    /// read for a thread that may block.
    ///
    /// # Errors
    /// The errors of pread(2), even if some bytes were read before.
    pub fn blocking_read_at<'a>(
        &self,
        buf: impl Into<UninitSlice<'a>>,
        offset: u64,
    ) -> Result<usize> {
        let mut space = buf.into();
        self.fill("read_at", &mut space, offset)
    }

    /// Fills borrowed memory from `offset` on. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::UnexpectedEof`] if the file ends earlier; otherwise the errors of pread(2).
    pub fn blocking_read_exact_at<'a>(
        &self,
        buf: impl Into<UninitSlice<'a>>,
        offset: u64,
    ) -> Result<()> {
        let mut space = buf.into();
        let n = self.fill("read_exact_at", &mut space, offset)?;
        if n == space.len() {
            Ok(())
        } else {
            Err(self.failed("read_exact_at", ErrorKind::UnexpectedEof))
        }
    }

    #[inline]
    fn fill(
        &self,
        operation: &'static str,
        space: &mut UninitSlice<'_>,
        offset: u64,
    ) -> Result<usize> {
        if let Some(why) = refused(&self.handle, space, offset) {
            return Err(self.failed(operation, why));
        }
        let keep = self.keep_cache.as_ref();
        let _access = keep.and_then(|it| it.read(offset, space.len(), Evicts::Caller));
        fill_space(&self.handle, space, offset)
            .map_err(|errno| Error::os(operation, errno).on(self.handle.shared_path()))
    }

    /// Writes `buffer` at `offset`. The count may be less than its length; see pwrite(2).
    pub fn write_at<B: IoBuf>(&self, buffer: B, offset: u64) -> WriteAt<'_, B> {
        WriteAt::new(self.parts(), buffer, offset, false)
    }

    /// Writes all of `buffer` at `offset`.
    pub fn write_all_at<B: IoBuf>(&self, buffer: B, offset: u64) -> WriteAt<'_, B> {
        WriteAt::new(self.parts(), buffer, offset, true)
    }

    /// Writes borrowed bytes at `offset`. Blocks. The count may be less than the length.
    ///
    /// # Errors
    /// The errors of pwrite(2).
    pub fn blocking_write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        if let Some(needed) = self.handle.alignment() {
            let piece = std::iter::once((bytes.as_ptr().addr(), bytes.len()));
            if let Some(why) = needed.refuses(false, Some(offset), piece) {
                return Err(self.failed("write_at", why));
            }
        }
        let keep = self.keep_cache.as_ref();
        let _access =
            keep.and_then(|it| it.write(offset, bytes.len(), RwFlags::empty(), Evicts::Caller));
        retry::interrupted(|| rw::pwritev2(self.handle.as_fd(), bytes, Some(offset), 0))
            .map_err(|e| Error::os("write_at", e).on(self.handle.shared_path()))
    }

    /// Writes all of the borrowed bytes at `offset`. Blocks.
    ///
    /// # Errors
    /// The errors of pwrite(2); [`ErrorKind::WriteZero`] if the kernel accepts no more bytes.
    pub fn blocking_write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.blocking_write_at(&bytes[done..], offset + done as u64) {
                Ok(0) => return Err(self.failed("write_all_at", ErrorKind::WriteZero)),
                Ok(n) => done += n,
                Err(e) => return Err(e.named("write_all_at")),
            }
        }
        Ok(())
    }

    /// Writes data and metadata to the device: fsync(2).
    pub fn sync_all(&self) -> SyncFile<'_> {
        let op = Fsync::new(&self.handle);
        SyncFile::new(&self.handle, &self.engine, "sync_all", op)
    }

    /// Writes data, and the metadata needed to read it back, to the device: fdatasync(2).
    pub fn sync_data(&self) -> SyncFile<'_> {
        let op = Fsync::data(&self.handle);
        SyncFile::new(&self.handle, &self.engine, "sync_data", op)
    }

    /// Writes data and metadata to the device. Blocks.
    ///
    /// # Errors
    /// The errors of fsync(2).
    pub fn blocking_sync_all(&self) -> Result<()> {
        retry::interrupted(|| rustix::fs::fsync(&self.handle))
            .map_err(|e| Error::os("sync_all", e).on(self.handle.shared_path()))
    }

    /// Writes data, and the metadata needed to read it back, to the device. Blocks.
    ///
    /// # Errors
    /// The errors of fdatasync(2).
    pub fn blocking_sync_data(&self) -> Result<()> {
        retry::interrupted(|| rustix::fs::fdatasync(&self.handle))
            .map_err(|e| Error::os("sync_data", e).on(self.handle.shared_path()))
    }

    /// The size of a file or a block device in bytes. fstat(2) is called in the calling thread: the
    /// inode of an open file is in memory (a network filesystem may revalidate it). The size of a
    /// block device is queried with ioctl(2).
    ///
    /// # Errors
    /// The errors of fstat(2).
    pub fn len(&self) -> Result<u64> {
        sys::stat::size(self.handle.as_fd())
            .map_err(|e| Error::os("len", e).on(self.handle.shared_path()))
    }

    /// Returns true if the file has no bytes.
    ///
    /// # Errors
    /// As [`len`](File::len).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Queries the residency of the file. The source is chosen once for an open file.
    ///
    /// ```
    /// let file = nowait::File::blocking_open("Cargo.toml")?;
    /// if let Some(sum) = file.residency().residency(0..u64::MAX)?.known() {
    ///     println!("{} of {} pages are cached", sum.cached, sum.pages);
    /// }
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn residency(&self) -> Probe<'_> {
        self.handle.probe()
    }

    /// Returns true if reads and writes of this file leave the page cache as it was
    /// ([`OpenOptions::keep_cache`]), and false if the option was not set or the file has no pages
    /// that can be evicted (tmpfs, O_DIRECT, devices).
    ///
    /// # Errors
    /// The reason why the option has no effect: the kernel does not report which pages are cached, or
    /// may ask a server about the file ([`Handle::is_served`]). Then nothing is evicted.
    pub fn keeps_cache(&self) -> Result<bool, Reason> {
        match &self.keep_cache {
            Some(keep) => keep.check().map(|()| true),
            None => Ok(false),
        }
    }

    /// The plan for a read of `len` bytes: the decision that [`read_at`](File::read_at) would take
    /// now. It depends on what is known about the file. A first read may still find that the
    /// filesystem refuses cached reads.
    ///
    /// ```
    /// use nowait::read::{Plan, Reason};
    /// let file = nowait::File::blocking_open("Cargo.toml")?;
    /// match file.plan(4096) {
    ///     Plan::CacheFirst => println!("the page cache is tried first"),
    ///     other => println!("{other:?}"),
    /// }
    /// // A worker copies reads that are longer than the copy limit.
    /// assert_eq!(file.plan(64 << 20), Plan::Queue(Reason::Large));
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn plan(&self, len: usize) -> Plan {
        self.engine.read_path().plan(&self.handle, len)
    }

    /// The hit history of this file's reads.
    pub fn history(&self) -> Recent {
        self.handle.history().recent()
    }

    /// Creates a file on an engine from a handle.
    pub(crate) fn of(handle: Handle, engine: Engine) -> File {
        File {
            handle,
            engine,
            keep_cache: None,
        }
    }

    /// The handle, for creating operations.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The handle and the engine. What `keep_cache` has to evict is evicted.
    fn into_handle(self) -> (Handle, Engine) {
        drop(self.keep_cache);
        (self.handle, self.engine)
    }

    /// The engine of this file.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    fn parts(&self) -> Parts<'_> {
        Parts {
            handle: &self.handle,
            engine: &self.engine,
            keep_cache: self.keep_cache.as_deref(),
        }
    }

    fn failed(&self, operation: &'static str, kind: ErrorKind) -> Error {
        Error::new(operation, kind).on(self.handle.shared_path())
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}
