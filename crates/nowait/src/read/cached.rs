//! One page-cache-only read: `preadv2(RWF_NOWAIT)`, with every answer of it named.

use std::os::fd::{AsFd, BorrowedFd};

use crate::error::{Error, Result};
use crate::space::Space;
use crate::sys::rw::{self, Offset};
use crate::sys::{self, Errno};

/// What the page cache had of a range.
#[derive(Clone, Debug)]
pub enum Cached {
    /// Everything there is of it: as many bytes as asked, or up to the end of the file.
    All(usize),
    /// Its first bytes.
    Prefix(usize),
    /// Not its first byte.
    Nothing,
    /// This file refuses to say: the kernel, the sandbox or the filesystem lacks `RWF_NOWAIT`.
    Unsupported(Error),
}

/// Reads from the page cache, without waiting for the device.
///
/// `ssize_t preadv2(int fd, const struct iovec *iov, int iovcnt, off_t offset, RWF_NOWAIT)`
/// (Linux 4.14, preadv2(2)), called directly and only once.
///
/// It never *waits* for the device, but on kernels since about 6.12 it *starts* readahead of what
/// is not there before it answers [`Cached::Nothing`]. A file opened with O_DIRECT does device
/// I/O; don't ask. A zero from the kernel is taken for the end of the file only if the file's size
/// says so (5.9 and 5.10 say zero for "not cached").
///
/// # Errors
/// EBADF, EFAULT, EINVAL (also for a range beyond `i64`). Any other errno means "not now"
/// ([`Cached::Nothing`]): the ordinary read then says the truth.
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
pub fn cached<'a>(fd: impl AsFd, buf: impl Into<Space<'a>>, offset: u64) -> Result<Cached> {
    match attempt(fd.as_fd(), &mut buf.into(), Some(offset)) {
        Attempt::All(n) => Ok(Cached::All(n)),
        Attempt::Part(n) | Attempt::Prefix(n) => Ok(Cached::Prefix(n)),
        Attempt::Nothing | Attempt::NotNow | Attempt::FalseEof => Ok(Cached::Nothing),
        Attempt::Refused(errno) => Ok(Cached::Unsupported(Error::os("preadv2 RWF_NOWAIT", errno))),
        Attempt::Failed(errno) => Err(Error::os("cached read", errno)),
    }
}

/// [`Cached`], for the read path: no allocation, no error type, and the liars named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    All(usize),
    Prefix(usize),
    /// Some bytes at the file's own position: up to the end of the file, or of what is cached.
    Part(usize),
    Nothing,
    /// Some other errno: the ordinary read will say the truth.
    NotNow,
    /// The kernel said zero, and the file goes on.
    FalseEof,
    Refused(Errno),
    Failed(Errno),
}

const NOWAIT: u32 = crate::flags::RwFlags::NOWAIT.bits();

pub(crate) fn attempt(fd: BorrowedFd<'_>, space: &mut Space<'_>, offset: Offset) -> Attempt {
    let len = space.len();
    let got = rw::preadv2(fd, space, offset, NOWAIT);
    match got {
        Ok(n) if n == len => Attempt::All(n),
        Ok(n) => match (offset, n) {
            (None, 0) if !is_at_end(fd) => Attempt::FalseEof,
            (None, 0) => Attempt::All(0),
            (None, n) => Attempt::Part(n),
            (Some(at), n) if ended(fd, at, n) => Attempt::All(n),
            (Some(_), 0) => Attempt::FalseEof,
            (Some(_), n) => Attempt::Prefix(n),
        },
        Err(errno @ (Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM)) => Attempt::Refused(errno),
        Err(errno @ (Errno::BADF | Errno::INVAL | Errno::FAULT)) => Attempt::Failed(errno),
        Err(Errno::AGAIN) => Attempt::Nothing,
        Err(_) => Attempt::NotNow,
    }
}

/// Whether a short read that gave `n` bytes from `offset` on has met the end of the file, by what
/// its size says. A size that those very bytes are beyond is no size (files of procfs say 0): only
/// a read that gives nothing tells then.
pub(super) fn ended(fd: BorrowedFd<'_>, offset: u64, n: usize) -> bool {
    sys::stat::size(fd).is_ok_and(|size| match n {
        0 => size <= offset,
        n => size == offset + n as u64,
    })
}

/// Whether a file's own position is at its end, or beyond.
fn is_at_end(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::tell(fd).is_ok_and(|at| ended(fd, at, 0))
}
