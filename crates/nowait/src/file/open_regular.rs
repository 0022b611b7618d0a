//! Opening a regular file, and no other file.
//!
//! ```text
//!  O_PATH: opens nothing ─► statx: a regular file? ─► the same file, by its descriptor
//! ```
//!
//! Opening a FIFO wakes the program at its other end and may wait for one, and opening a device may have an effect. A
//! check of the path before it is opened would not be sufficient, because the path may refer to another file afterwards.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{Metadata, StatxMask};
use crate::retry;
use crate::sys::{self, Errno};

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
    let open = || reopen(path, &held, &metadata, flags - link);
    retry::interrupted(open).map_err(failed)
}

/// Opens the file of an O_PATH descriptor with these flags.
pub(crate) fn reopen(
    path: &Path,
    held: &OwnedFd,
    metadata: &Metadata,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    match sys::stat::reopen_with(held.as_fd(), flags) {
        Err(Errno::NOENT | Errno::NOTDIR) => by_path(path, metadata, flags),
        other => other,
    }
}

/// Opens the path again, where /proc is not mounted. The path may lead to another file by now: then the
/// file counts as removed.
fn by_path(path: &Path, metadata: &Metadata, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if (stat.st_dev, stat.st_ino) == (metadata.dev(), metadata.ino()) {
        Ok(fd)
    } else {
        Err(Errno::NOENT)
    }
}
