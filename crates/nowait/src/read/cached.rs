//! Reads of the page cache alone, and their possible results.

use std::os::fd::{AsFd, BorrowedFd};

use crate::error::{Error, Result};
use crate::kernel::filesystem::Filesystem;
use crate::kernel::flags::RwFlags;
use crate::sys::rw::{self, Offset};
use crate::sys::uninit_slice::UninitSlice;
use crate::sys::{self, Errno, stat};
use nowait_residency::Reason;
use nowait_residency::source_cache::{Coverage, SourceCache};

/// The part of a range that the page cache had.
#[derive(Clone, Debug)]
pub enum Cached {
    /// All bytes: as many as requested, or up to the end of the file.
    All(usize),
    /// A leading part.
    Prefix(usize),
    /// Nothing: the first byte was not cached.
    Nothing,
    /// The kernel, the sandbox or the filesystem does not support `RWF_NOWAIT`, and residency is
    /// unknown.
    Unsupported(Error),
}

/// Reads the bytes of a range that the page cache has.
///
/// One preadv2(2) with `RWF_NOWAIT` (Linux 4.14). If that is refused, as it is on overlayfs and
/// tmpfs, an ordinary read follows if the file is in memory, or if
/// [all bytes of the range are resident](crate::residency).
///
/// The call with `RWF_NOWAIT` never *waits* for the device. On kernels since about 6.12 it *starts*
/// readahead of missing pages before it returns [`Cached::Nothing`]. An ordinary read can wait: if
/// the bytes are evicted after the query, if a file of tmpfs is in swap, or if a FUSE filesystem
/// asks its server. [`cached_by_nowait`] makes no ordinary read.
///
/// On a file opened with O_DIRECT the call does device I/O; do not use it there. A result of zero
/// counts as the end of the file only if the file's size confirms it (Linux 5.9 and 5.10 return
/// zero for "not cached").
///
/// # Cost
/// A file on overlayfs is mapped for each call, which takes about 20 microseconds.
/// [`try_cached`](super::try_cached) keeps the mapping. Where `RWF_NOWAIT` is refused, the type of the
/// filesystem is asked for, once for each mount, and in each call before Linux 6.8: on NFS and FUSE,
/// fstatfs(2) waits for the server. [`try_cached`](super::try_cached) does not ask.
///
/// # Errors
/// EBADF, EFAULT, and EINVAL (also for a range beyond `i64`). Any other errno counts as
/// [`Cached::Nothing`]: the ordinary read then returns the error.
///
/// ```
/// use nowait::read::{Cached, cached};
/// let file = std::fs::File::open("Cargo.toml")?;
/// let mut buf = [0; 64];
/// match cached(&file, &mut buf, 0)? {
///     Cached::All(n) | Cached::Prefix(n) => println!("{n} bytes from the page cache"),
///     Cached::Nothing => println!("not cached: would wait for the device"),
///     Cached::Unsupported(why) => println!("{why}"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn cached<'a>(fd: impl AsFd, buf: impl Into<UninitSlice<'a>>, offset: u64) -> Result<Cached> {
    let (fd, mut space) = (fd.as_fd(), buf.into());
    let got = nowait(fd, &mut space, Some(offset));
    match got {
        Ok(n) if n == space.len() => Ok(Cached::All(n)),
        got => cached_after(fd, space, offset, got),
    }
}

/// [`cached`] after a call that has not read all bytes.
#[cold]
fn cached_after(
    fd: BorrowedFd<'_>,
    mut space: UninitSlice<'_>,
    offset: u64,
    got: Result<usize, Errno>,
) -> Result<Cached> {
    match attempt_of_fd(fd, got, space.len(), Some(offset)) {
        Attempt::Refused(errno) => {
            let known = stat::known(fd).and_then(|file| Ok((Filesystem::of(fd, &file)?, file)));
            let Ok((filesystem, file)) = known else {
                return answer(Attempt::Refused(errno));
            };
            let is_local = !filesystem.is_served(file.looks_local);
            let coverage = if !file.is_regular() || !is_local || filesystem.is_in_kernel() {
                Coverage::Unknown(Reason::NotAFile)
            } else if filesystem.is_memory() {
                Coverage::Full
            } else {
                SourceCache::default().ask(fd, offset, space.len())
            };
            read_resident(fd, &mut space, offset, coverage)
        }
        attempt => answer(attempt),
    }
}

/// Reads from the page cache by one preadv2(2) with `RWF_NOWAIT` alone, and so never waits for the
/// device. [`Cached::Unsupported`] if the kernel, the sandbox or the filesystem refuses the flag.
///
/// # Errors
/// As [`cached`].
pub fn cached_by_nowait<'a>(
    fd: impl AsFd,
    buf: impl Into<UninitSlice<'a>>,
    offset: u64,
) -> Result<Cached> {
    answer(attempt(fd.as_fd(), &mut buf.into(), Some(offset)))
}

/// Reads a file from its beginning, as [`cached_by_nowait`], that had this size after it was opened. If the read ends
/// there, the file has ended. A file whose pages are all in memory is simply read.
pub(crate) fn cached_file(
    fd: impl AsFd,
    mut buf: UninitSlice<'_>,
    size: u64,
    in_memory: bool,
) -> Result<Cached> {
    let (fd, len) = (fd.as_fd(), buf.len());
    let got = match in_memory {
        true => rw::preadv2(fd, &mut buf, Some(0), 0),
        false => nowait(fd, &mut buf, Some(0)),
    };
    let ended = |at: u64, n: usize| at + n as u64 == size || ended(fd, at, n);
    answer(attempt_of(fd, got, len, Some(0), ended))
}

fn answer(attempt: Attempt) -> Result<Cached> {
    match attempt {
        Attempt::All(n) => Ok(Cached::All(n)),
        Attempt::Part(n) | Attempt::Prefix(n) => Ok(Cached::Prefix(n)),
        Attempt::Nothing | Attempt::NotNow | Attempt::FalseEof => Ok(Cached::Nothing),
        Attempt::Refused(errno) => Ok(Cached::Unsupported(Error::os("preadv2 RWF_NOWAIT", errno))),
        Attempt::Failed(errno) => Err(Error::os("cached read", errno)),
    }
}

/// An ordinary read, if all bytes are resident.
fn read_resident(
    fd: BorrowedFd<'_>,
    space: &mut UninitSlice<'_>,
    offset: u64,
    coverage: Coverage,
) -> Result<Cached> {
    match coverage {
        Coverage::Full => {}
        Coverage::Partial | Coverage::Empty => return Ok(Cached::Nothing),
        // The error is that of the call.
        Coverage::Unknown(_) => return answer(attempt(fd, space, Some(offset))),
    }
    let got = rw::preadv2(fd, space, Some(offset), 0);
    answer(attempt_of_fd(fd, got, space.len(), Some(offset)))
}

/// [`Cached`] for the read path: without allocation or error type, and with more cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    All(usize),
    Prefix(usize),
    /// Some bytes at the file's own position, up to the end of the file or of the cached part.
    Part(usize),
    Nothing,
    /// Another errno. The ordinary read will return the error.
    NotNow,
    /// The kernel returned zero before the end of the file.
    FalseEof,
    Refused(Errno),
    Failed(Errno),
}

/// One preadv2(2) with `RWF_NOWAIT`.
#[inline]
pub(super) fn nowait(
    fd: BorrowedFd<'_>,
    space: &mut UninitSlice<'_>,
    offset: Offset,
) -> Result<usize, Errno> {
    rw::preadv2(fd, space, offset, RwFlags::NOWAIT.bits())
}

fn attempt(fd: BorrowedFd<'_>, space: &mut UninitSlice<'_>, offset: Offset) -> Attempt {
    let got = nowait(fd, space, offset);
    attempt_of_fd(fd, got, space.len(), offset)
}

fn attempt_of_fd(
    fd: BorrowedFd<'_>,
    got: Result<usize, Errno>,
    len: usize,
    offset: Offset,
) -> Attempt {
    attempt_of(fd, got, len, offset, |at, n| ended(fd, at, n))
}

/// Interprets the result of a read of `len` bytes. `ended` is called after a short read of a number of bytes from an
/// offset on.
pub(super) fn attempt_of(
    fd: BorrowedFd<'_>,
    got: Result<usize, Errno>,
    len: usize,
    offset: Offset,
    ended: impl FnOnce(u64, usize) -> bool,
) -> Attempt {
    match got {
        Ok(n) if n == len => Attempt::All(n),
        Ok(n) => match (offset, n) {
            (None, 0) if !is_at_end(fd) => Attempt::FalseEof,
            (None, 0) => Attempt::All(0),
            (None, n) => Attempt::Part(n),
            (Some(at), n) if ended(at, n) => Attempt::All(n),
            (Some(_), 0) => Attempt::FalseEof,
            (Some(_), n) => Attempt::Prefix(n),
        },
        Err(errno @ (Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM)) => Attempt::Refused(errno),
        Err(errno @ (Errno::BADF | Errno::INVAL | Errno::FAULT)) => Attempt::Failed(errno),
        Err(Errno::AGAIN) => Attempt::Nothing,
        Err(_) => Attempt::NotNow,
    }
}

/// Returns true if a short read of `n` bytes from `offset` on has reached the end of the file, by
/// the file's size. A size that is less than the end of those bytes is ignored (procfs reports 0):
/// then only a read of zero bytes shows the end.
pub(super) fn ended(fd: BorrowedFd<'_>, offset: u64, n: usize) -> bool {
    sys::stat::size(fd).is_ok_and(|size| match n {
        0 => size <= offset,
        n => size == offset + n as u64,
    })
}

/// Returns true if the file's own position is at or beyond its end.
fn is_at_end(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::tell(fd).is_ok_and(|at| ended(fd, at, 0))
}
