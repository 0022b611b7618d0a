//! Opening a regular file, and no other file.
//!
//! ```text
//!  O_PATH: opens nothing ─► statx: a regular file? ─► the same file, by its descriptor
//! ```
//!
//! Opening a FIFO wakes the program at its other end and may wait for one, and opening a device may
//! have an effect. A check of the path before it is opened would not be sufficient, because the
//! path may refer to another file afterwards.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::reopen::open_held;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{Metadata, StatxMask};
use crate::sys::Errno;
use crate::sys::reopen::Descriptors;
use crate::sys::retry;
use crate::sys::stat::MNT_ID_UNIQUE;

/// The time between two attempts to open a file with a lease.
const LEASE: Duration = Duration::from_millis(5);

/// Opens the regular file at a path with these flags. Blocks.
///
/// # Errors
/// The errors of open(2); EISDIR for a directory; [`ErrorKind::NotRegular`] for any other file.
pub(crate) fn open_regular(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let link = flags & OFlags::NOFOLLOW;
    let (held, _) = hold_regular(path, link)?;
    let descriptors = Descriptors::of_this_thread();
    open_held_regular(path, &held, flags - link, &descriptors).map_err(failed)
}

/// The O_PATH descriptor of the regular file at a path, and its metadata. `link` is O_NOFOLLOW or
/// empty. Blocks.
///
/// # Errors
/// As [`open_regular`].
pub(crate) fn hold_regular(path: &Path, link: OFlags) -> Result<(OwnedFd, Metadata)> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | link;
    let held = retry::interrupted(|| rustix::fs::open(path, flags, Mode::empty()));
    let held = held.map_err(failed)?;
    let fields = StatxMask::BASIC_STATS | StatxMask::from_bits_retain(MNT_ID_UNIQUE.bits());
    let metadata = Metadata::statx(&held, "", libc::AT_EMPTY_PATH, fields);
    let metadata = metadata.map_err(|e| e.named(NAME))?;
    if metadata.is_dir() {
        return Err(failed(Errno::ISDIR));
    }
    if !metadata.is_file() {
        return Err(Error::new(NAME, ErrorKind::NotRegular));
    }
    Ok((held, metadata))
}

/// Opens the file that [`hold_regular`] holds with these flags. Waits until the holder of a lease
/// gives it up, which takes a limited time (fcntl(2)).
pub(crate) fn open_held_regular(
    path: &Path,
    held: &OwnedFd,
    flags: OFlags,
    descriptors: &Descriptors,
) -> Result<OwnedFd, Errno> {
    let by_path = |flags: OFlags| {
        // A FIFO may have taken the place of the file.
        let open = || rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::empty());
        let fd = loop {
            match retry::interrupted(open) {
                Err(Errno::AGAIN) if !flags.contains(OFlags::NONBLOCK) => thread::sleep(LEASE),
                opened => break opened?,
            }
        };
        // Rings honour O_NONBLOCK.
        rustix::fs::fcntl_setfl(&fd, flags)?;
        Ok(fd)
    };
    let fd = open_held(held, flags - OFlags::TRUNC, descriptors, by_path)?;
    // The path may have led to another file, which is not truncated.
    if flags.contains(OFlags::TRUNC) {
        retry::interrupted(|| rustix::fs::ftruncate(&fd, 0))?;
    }
    Ok(fd)
}

const NAME: &str = "open";

fn failed(errno: Errno) -> Error {
    Error::os(NAME, errno)
}
