//! Opening a regular file, and no other file.
//!
//! ```text
//!  O_PATH: opens nothing ─► statx: a regular file? ─► the same file, by its descriptor
//! ```
//!
//! Opening a FIFO wakes the program at its other end and may wait for one, and opening a device may have an effect. A
//! check of the path before it is opened would not be sufficient, because the path may refer to another file afterwards.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::reopen::open_held;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{Metadata, StatxMask};
use crate::retry;
use crate::sys::Errno;
use crate::sys::reopen::Descriptors;

/// Opens the regular file at a path with these flags. Blocks.
///
/// # Errors
/// The errors of open(2); EISDIR for a directory; [`ErrorKind::NotRegular`] for any other file.
pub(crate) fn open_regular(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let failed = |errno| Error::os("open", errno);
    let link = flags & OFlags::NOFOLLOW;
    let held = OFlags::PATH | OFlags::CLOEXEC | link;
    let held =
        retry::interrupted(|| rustix::fs::open(path, held, Mode::empty())).map_err(failed)?;
    let metadata = Metadata::statx(&held, "", libc::AT_EMPTY_PATH, StatxMask::BASIC_STATS);
    let metadata = metadata.map_err(|e| e.named("open"))?;
    if metadata.is_dir() {
        return Err(failed(Errno::ISDIR));
    }
    if !metadata.is_file() {
        return Err(Error::new("open", ErrorKind::NotRegular));
    }
    let by_path = |flags| {
        let open = || rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::empty());
        let fd = retry::interrupted(open)?;
        // Rings honour O_NONBLOCK.
        rustix::fs::fcntl_setfl(&fd, flags)?;
        Ok(fd)
    };
    open_held(&held, flags - link, &Descriptors::of_this_thread(), by_path).map_err(failed)
}
