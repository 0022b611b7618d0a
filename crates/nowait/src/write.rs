//! The write path: pwritev2(2) with its flags, and in the caller where that is known not to wait.

use std::os::fd::AsFd;

use crate::error::{Error, Result};
use crate::flags::RwFlags;
use crate::handle::Handle;
use crate::policy::Policy;
use crate::stats::Count;
use crate::sys::Errno;
use crate::sys::limit::file_size_is_limited;
use crate::sys::rw::{self, Offset};

/// One write with `RWF_*` flags: pwritev2(2), once.
///
/// # Errors
/// [`Unsupported`](crate::ErrorKind::Unsupported) where the kernel or the filesystem refuses one of
/// the flags (EOPNOTSUPP, ENOSYS), else the kernel's errno; EAGAIN from `NOWAIT` among them.
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

/// The caller's part of a write, at an offset or at the file's own position: `RWF_NOWAIT` where it
/// was learnt to work, or was not tried yet. Returns how many bytes were written; the rest is the
/// engine's.
///
/// Nothing is tried where it could raise SIGXFSZ in the caller (RLIMIT_FSIZE), on O_DIRECT files,
/// or for more than the caller should copy.
pub(crate) fn start(policy: &Policy, handle: &Handle, bytes: &[u8], offset: Offset) -> usize {
    let tries = handle.is_regular()
        && !handle.is_direct()
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
        // The ordinary write will say the truth.
        Err(_) => 0,
    }
}
