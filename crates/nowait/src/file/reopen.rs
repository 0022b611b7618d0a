//! Opening the file of a descriptor again, so that one look-up of a path decides which file is
//! opened.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::OFlags;

use crate::error::{Error, Result};
use crate::sys::Errno;
use crate::sys::reopen::Descriptors;
use crate::sys::retry;

/// Opens the file of a descriptor again, with these flags of open(2) and with its own position. No
/// path is resolved.
///
/// It is the second step of opening a file only if it is regular. A path is opened with O_PATH,
/// which opens no file: it does not wake the writer of a FIFO and has no effect on a device. The
/// type is asked of that descriptor. The file is then opened by the descriptor, because the path
/// may lead to another file by now.
///
/// ```
/// use rustix::fs::{FileType, Mode, OFlags};
/// let held = rustix::fs::open("Cargo.toml", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
/// let stat = rustix::fs::fstat(&held)?;
/// assert_eq!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile);
/// let file = nowait::reopen(&held, OFlags::RDONLY | OFlags::NONBLOCK)?;
/// assert_eq!(rustix::io::read(&file, &mut [0; 9])?, 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The descriptor is closed on exec (O_CLOEXEC). With O_NONBLOCK it does not wait for a lease of
/// the file to be given up (fcntl(2)).
///
/// # Errors
/// The errors of open(2). ENOENT where /proc is not mounted: the file is opened as a link in
/// /proc/thread-self/fd (proc_pid_fd(5), Linux 3.17).
pub fn reopen(fd: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
    let descriptors = Descriptors::of_this_thread();
    retry::interrupted(|| descriptors.reopen(fd.as_fd(), flags))
        .map_err(|errno| Error::os("open", errno))
}

/// Opens the file of the O_PATH descriptor `held` with these flags. Where /proc is not mounted,
/// `by_path` resolves the path of `held` again with the same flags. It may lead to another file by
/// now: then the file counts as removed. That file has been opened, so that the writer of a FIFO is
/// woken.
///
/// # Errors
/// The errors of open(2); ENOENT if the path leads to another file.
pub(crate) fn open_held(
    held: &OwnedFd,
    flags: OFlags,
    descriptors: &Descriptors,
    by_path: impl FnOnce(OFlags) -> Result<OwnedFd, Errno>,
) -> Result<OwnedFd, Errno> {
    match retry::interrupted(|| descriptors.reopen(held.as_fd(), flags)) {
        Err(errno) if descriptors.are_missing(errno) => {
            let fd = by_path(flags | OFlags::NOCTTY | OFlags::CLOEXEC)?;
            let (held, opened) = (rustix::fs::fstat(held)?, rustix::fs::fstat(&fd)?);
            let is_same = (held.st_dev, held.st_ino) == (opened.st_dev, opened.st_ino);
            is_same.then_some(fd).ok_or(Errno::NOENT)
        }
        other => other,
    }
}
