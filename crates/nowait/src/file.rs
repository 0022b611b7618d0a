//! File: positional reads and writes on one open file, as futures and as blocking calls.
//!
//! The futures need no runtime: the engine's owner or a worker wakes them. A read that the page
//! cache serves is ready at the first poll, without an allocation or a lock. Dropping a future at
//! any point is safe: what the kernel may still touch stays with the operation until it is done.

mod open;
mod open_cached;
mod read_at;
mod sync;
mod vectored_at;
mod write_at;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub use open::{Open, OpenOptions};
pub use read_at::ReadAt;
pub use sync::SyncFile;
pub use write_at::WriteAt;

#[cfg(feature = "tokio")]
pub(crate) use open_cached::open_cached;

use crate::buffer::{IoBuf, IoBufMut, Space};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::flags::RwFlags;
use crate::handle::Handle;
use crate::op::{Fsync, SyncFileRange, SyncRange};
use crate::read::blocking::{fill_space, refused};
use crate::read::{self, Plan, Recent, Request};
use crate::residency::{self, Answer, Residency};
use crate::retry;
use crate::sys::{self, Errno, rw};

/// An open file on an engine. `Send`, `Sync`, and cheap to clone: clones are the same open file.
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
}

impl File {
    /// Takes in an open descriptor (a `std::fs::File`, say), on an engine of the caller's choice.
    ///
    /// # Errors
    /// What fstat(2), fstatfs(2) or fcntl(2) say of it.
    pub fn from_fd(fd: impl Into<OwnedFd>, engine: &Engine) -> Result<File> {
        Ok(File {
            // Its engine's mode is its own from the start: a strict file is set up for it.
            handle: Handle::with(fd.into(), None, Some(engine.policy().mode))?,
            engine: engine.clone(),
        })
    }

    /// A file on this engine for a handle, such as one of a set of registered files
    /// ([`FileSet::insert`](crate::engine::FileSet::insert)).
    pub fn from_handle(handle: &Handle, engine: &Engine) -> File {
        File {
            handle: handle.clone(),
            engine: engine.clone(),
        }
    }

    /// Reads into `buffer` from `offset` on. The count is less than the buffer's room only at the
    /// end of the file.
    ///
    /// Follows pread(2): the file's own position does not move.
    pub fn read_at<B: IoBufMut>(&self, buffer: B, offset: u64) -> ReadAt<'_, B> {
        ReadAt::new(&self.handle, &self.engine, buffer, offset, false)
    }

    /// Fills `buffer` from `offset` on; [`ErrorKind::UnexpectedEof`] if the file ends before.
    pub fn read_exact_at<B: IoBufMut>(&self, buffer: B, offset: u64) -> ReadAt<'_, B> {
        ReadAt::new(&self.handle, &self.engine, buffer, offset, true)
    }

    /// Reads into borrowed memory from `offset` on; blocks. The count is less than asked only at
    /// the end of the file. Plain pread(2), continued after short reads: for a thread that may
    /// wait nothing is faster.
    ///
    /// # Errors
    /// As pread(2) says; also after some bytes were read.
    pub fn blocking_read_at<'a>(&self, buf: impl Into<Space<'a>>, offset: u64) -> Result<usize> {
        let mut space = buf.into();
        self.fill("read_at", &mut space, offset)
    }

    /// Fills borrowed memory from `offset` on; blocks.
    ///
    /// # Errors
    /// [`ErrorKind::UnexpectedEof`] if the file ends before, else as pread(2) says.
    pub fn blocking_read_exact_at<'a>(&self, buf: impl Into<Space<'a>>, offset: u64) -> Result<()> {
        let mut space = buf.into();
        let n = self.fill("read_exact_at", &mut space, offset)?;
        if n == space.len() {
            Ok(())
        } else {
            Err(self.failed("read_exact_at", ErrorKind::UnexpectedEof))
        }
    }

    fn fill(&self, operation: &'static str, space: &mut Space<'_>, offset: u64) -> Result<usize> {
        if let Some(why) = refused(&self.handle, space, offset) {
            return Err(self.failed(operation, why));
        }
        fill_space(&self.handle, space, offset)
            .map_err(|errno| Error::os(operation, errno).on(self.handle.shared_path()))
    }

    /// Reads what the page cache has of the range into borrowed memory, without waiting; see
    /// [`read::cached`].
    ///
    /// # Errors
    /// EBADF, EFAULT, EINVAL.
    pub fn cached_read_at<'a>(
        &self,
        buf: impl Into<Space<'a>>,
        offset: u64,
    ) -> Result<read::Cached> {
        read::cached(&self.handle, buf, offset).map_err(|e| e.on(self.handle.shared_path()))
    }

    /// Writes `buffer` at `offset`. The count may be less than its length, as pwrite(2) says.
    pub fn write_at<B: IoBuf>(&self, buffer: B, offset: u64) -> WriteAt<'_, B> {
        WriteAt::new(&self.handle, &self.engine, buffer, offset, false)
    }

    /// Writes all of `buffer` at `offset`.
    pub fn write_all_at<B: IoBuf>(&self, buffer: B, offset: u64) -> WriteAt<'_, B> {
        WriteAt::new(&self.handle, &self.engine, buffer, offset, true)
    }

    /// Writes borrowed bytes at `offset`; blocks. The count may be less than asked.
    ///
    /// # Errors
    /// As pwrite(2) says.
    pub fn blocking_write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        if let Some(needed) = self.handle.alignment() {
            let piece = std::iter::once((bytes.as_ptr().addr(), bytes.len()));
            if let Some(why) = needed.refuses(false, Some(offset), piece) {
                return Err(self.failed("write_at", why));
            }
        }
        retry::interrupted(|| rw::pwritev2(self.handle.as_fd(), bytes, Some(offset), 0))
            .map_err(|e| Error::os("write_at", e).on(self.handle.shared_path()))
    }

    /// Writes all of the borrowed bytes at `offset`; blocks.
    ///
    /// # Errors
    /// As pwrite(2) says; [`ErrorKind::WriteZero`] if the kernel takes no more.
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

    /// Brings data and metadata to the device: fsync(2).
    pub fn sync_all(&self) -> SyncFile<'_> {
        SyncFile::new(
            &self.handle,
            &self.engine,
            "sync_all",
            Fsync::new(&self.handle),
        )
    }

    /// Brings data, and the metadata needed to read it back, to the device: fdatasync(2).
    pub fn sync_data(&self) -> SyncFile<'_> {
        SyncFile::new(
            &self.handle,
            &self.engine,
            "sync_data",
            Fsync::data(&self.handle),
        )
    }

    /// Writes what is dirty of a range back and waits for that; 0 bytes mean "to the end of the file".
    /// This paces writeback and makes nothing durable: see [`SyncFileRange`].
    ///
    /// ```
    /// let file = nowait::File::from_fd(tempfile::tempfile()?, &nowait::Engine::process()?)?;
    /// pollster::block_on(async {
    ///     file.write_all_at(vec![1; 65536], 0).await.into_result()?;
    ///     file.sync_range(0, 65536).await
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sync_range(&self, offset: u64, len: u64) -> SyncFile<'_> {
        let op = SyncFileRange::new(&self.handle, offset, len, SyncRange::all());
        SyncFile::new(&self.handle, &self.engine, "sync_range", op)
    }

    /// Brings data and metadata to the device; blocks.
    ///
    /// # Errors
    /// As fsync(2) says.
    pub fn blocking_sync_all(&self) -> Result<()> {
        rustix::fs::fsync(&self.handle)
            .map_err(|e| Error::os("sync_all", e).on(self.handle.shared_path()))
    }

    /// Brings data to the device; blocks.
    ///
    /// # Errors
    /// As fdatasync(2) says.
    pub fn blocking_sync_data(&self) -> Result<()> {
        rustix::fs::fdatasync(&self.handle)
            .map_err(|e| Error::os("sync_data", e).on(self.handle.shared_path()))
    }

    /// The file's size in bytes. Asked for in the caller: the inode of an open file is in memory
    /// (a network filesystem may revalidate it).
    ///
    /// # Errors
    /// As fstat(2) says.
    pub fn len(&self) -> Result<u64> {
        sys::stat::size(self.handle.as_fd())
            .map_err(|e| Error::os("len", e).on(self.handle.shared_path()))
    }

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As [`len`](File::len).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Whether all of a range that lies within the file is in the page cache: the question of a
    /// strict read; see [`residency::Probe::is_resident`].
    ///
    /// # Errors
    /// As there.
    pub fn is_resident(&self, offset: u64, len: u64) -> Result<Answer<bool>> {
        residency::View::new(self.handle.as_fd(), self.handle.residency())
            .is_resident(offset, len)
            .map_err(|e| e.on(self.handle.shared_path()))
    }

    /// How many bytes from `offset` on are in the page cache without a gap; see
    /// [`residency::resident_prefix`]. Who is to be asked is found out once for an open file.
    ///
    /// # Errors
    /// As there.
    pub fn resident_prefix(&self, offset: u64, len: u64) -> Result<Answer<u64>> {
        residency::View::new(self.handle.as_fd(), self.handle.residency())
            .resident_prefix(offset, len)
            .map_err(|e| e.on(self.handle.shared_path()))
    }

    /// How many of the file's pages are in the page cache, and in what state; see
    /// [`residency::residency`], and [`residency::page_map`] for which.
    ///
    /// # Errors
    /// As there.
    pub fn residency(&self) -> Result<Answer<Residency>> {
        residency::View::new(self.handle.as_fd(), self.handle.residency())
            .residency(0..u64::MAX)
            .map_err(|e| e.on(self.handle.shared_path()))
    }

    /// How a read of `len` bytes would be served now: the decision that [`read_at`](File::read_at)
    /// would take, by what is known of the file so far. A first read may still learn that its
    /// filesystem refuses cached reads.
    ///
    /// ```
    /// use nowait::read::{Plan, Reason};
    /// let file = nowait::File::blocking_open("Cargo.toml")?;
    /// match file.plan(4096) {
    ///     Plan::CacheFirst => println!("the page cache is tried first"),
    ///     other => println!("{other:?}"),
    /// }
    /// // More than a caller should copy at once is for a worker.
    /// assert_eq!(file.plan(64 << 20), Plan::Queue(Reason::Large));
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn plan(&self, len: usize) -> Plan {
        let policy = self.engine.policy();
        let mode = self.handle.mode().unwrap_or(policy.mode);
        let request = Request {
            len,
            flags: RwFlags::empty(),
            positional: true,
            batch: false,
            alone: self.engine.is_idle(),
        };
        let decision = self.handle.history().foresee(policy.nowait, policy.costs());
        let facts = read::facts(&self.handle, mode);
        read::plan(request, facts, mode, decision, policy.copy_limit)
    }

    /// What its reads have found in the page cache lately.
    pub fn history(&self) -> Recent {
        self.handle.history().recent()
    }

    /// A file on an engine, of a handle that is there already.
    #[cfg(feature = "tokio")]
    pub(crate) fn of(handle: Handle, engine: Engine) -> File {
        File { handle, engine }
    }

    /// The handle, to build operations on.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The descriptor of a file that nothing else has been done with.
    pub(crate) fn into_fd(self) -> Result<OwnedFd> {
        let failed = |_| Error::os("open", Errno::BADF);
        self.handle.into_fd().map_err(failed)
    }

    /// The engine it is on.
    pub fn engine(&self) -> &Engine {
        &self.engine
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
