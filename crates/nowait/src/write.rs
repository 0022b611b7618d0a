//! The write path: pwritev2(2) with its flags, and writes in the calling thread where they are
//! known not to block.

use std::os::fd::AsFd;

use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::policy::Policy;
use crate::policy::stats::Count;
use crate::sys::Errno;
use crate::sys::limit::file_size_is_limited;
use crate::sys::rw::{self, Offset};

/// One pwritev2(2) call with `RWF_*` flags.
///
/// # Errors
/// [`Unsupported`](crate::ErrorKind::Unsupported) if the kernel or the filesystem refuses one of
/// the flags (EOPNOTSUPP, ENOSYS); otherwise the kernel's errno, such as EAGAIN with `NOWAIT`.
///
/// ```
/// use nowait::{RwFlags, write};
/// let file = tempfile::tempfile()?;
/// assert_eq!(write::with_flags(&file, b"durable", 0, RwFlags::DSYNC)?, 7);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn with_flags(fd: impl AsFd, bytes: &[u8], offset: u64, flags: RwFlags) -> Result<usize> {
    rw::pwritev2(fd.as_fd(), bytes, Some(offset), flags.bits())
        .map_err(|errno| Error::os("pwritev2", errno))
}

/// The part of a write that runs in the calling thread, at an offset or at the file's own position.
/// It uses `RWF_NOWAIT` if that works or was not tried yet. Returns the number of bytes written;
/// the engine writes the rest.
///
/// Nothing is tried if it could raise SIGXFSZ in the calling thread (RLIMIT_FSIZE), on O_DIRECT
/// files, on files whose writes are synced (the kernel does so after the write, and waits despite
/// `RWF_NOWAIT`), or for more bytes than the copy limit.
pub(crate) fn start(policy: &Policy, handle: &Handle, bytes: &[u8], offset: Offset) -> usize {
    let tries = handle.is_regular()
        && !handle.is_direct()
        && !handle.syncs()
        && !handle.filesystem().is_memory()
        && !policy.polled
        && bytes.len() <= policy.copy_limit
        && !handle.nowait_write().is_refused()
        && !file_size_is_limited();
    if !tries {
        return 0;
    }
    match rw::pwritev2(handle.as_fd(), bytes, offset, RwFlags::NOWAIT.bits()) {
        Ok(n) => {
            handle.nowait_write_worked();
            policy.counters.count(Count::WriteHits);
            n
        }
        Err(Errno::AGAIN) => {
            handle.nowait_write_worked();
            0
        }
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
            handle.nowait_write_refused();
            0
        }
        // The ordinary write will return the error.
        Err(_) => 0,
    }
}
