//! Opening a file in the calling thread, if that does not block.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, OFlags, StatxAttributes, StatxFlags};

use super::reopen::open_held;
use crate::kernel::filesystem::Filesystem;
use crate::metadata::Metadata;
use crate::sys::Errno;
use crate::sys::reopen::Descriptors;
use crate::sys::resolve::resolve_cached;
use crate::sys::stat::MNT_ID_UNIQUE;

/// Opens a file for reading in the calling thread, if that does not block, and asks for its basic
/// metadata. Returns `None` if it might block or has failed: then the engine opens the file and
/// returns the error. The one error that is returned is ENOENT, if the kernel's cache of names says
/// so.
///
/// The kernel resolves the path from its caches or fails (`RESOLVE_CACHED`, openat2(2), Linux
/// 5.12). That is not sufficient: opening a FIFO waits for its other end, and opening a device or a
/// file on a network filesystem may wait as well. Therefore the path is first opened with O_PATH,
/// and its type is asked for. Everything except regular files on filesystems that are known not to
/// wait is left to the engine. So are encrypted files and files with verity, whose keys and hashes
/// must be read. O_NONBLOCK avoids waiting for a lease (fcntl(2)). A wait for a permission event
/// (fanotify(7)) cannot be avoided.
///
/// The path is then resolved again, which takes less time than to open the file of the O_PATH
/// descriptor. If it leads to another file by now, that file is closed and left to the engine.
pub(crate) fn open_cached(path: &Path) -> Option<Result<(OwnedFd, Metadata), Errno>> {
    open_held_by(path, |_, metadata, flags| {
        let fd = resolve_cached(CWD, path, flags | OFlags::NOCTTY)?;
        let opened = rustix::fs::fstat(&fd)?;
        let is_same = (opened.st_dev, opened.st_ino) == (metadata.dev(), metadata.ino());
        is_same.then_some(fd).ok_or(Errno::AGAIN)
    })
}

/// As [`open_cached`], by one lookup of the path: no file of another type is opened, if /proc is
/// mounted.
pub(crate) fn open_cached_regular(
    path: &Path,
    descriptors: &Descriptors,
) -> Option<Result<(OwnedFd, Metadata), Errno>> {
    open_held_by(path, |held, _, flags| {
        open_held(held, flags, descriptors, |flags| {
            resolve_cached(CWD, path, flags)
        })
    })
}

fn open_held_by(
    path: &Path,
    open: impl FnOnce(&OwnedFd, &Metadata, OFlags) -> Result<OwnedFd, Errno>,
) -> Option<Result<(OwnedFd, Metadata), Errno>> {
    let held = match resolve_cached(CWD, path, OFlags::PATH) {
        Ok(held) => held,
        Err(Errno::NOENT) => return Some(Err(Errno::NOENT)),
        Err(_) => return None,
    };
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let fields = StatxFlags::BASIC_STATS | MNT_ID_UNIQUE;
    let stat = rustix::fs::statx(&held, c"", flags, fields).ok()?;
    let slow = StatxAttributes::ENCRYPTED | StatxAttributes::VERITY;
    let is_slow = stat.stx_attributes.intersects(slow);
    let metadata = Metadata::new(stat);
    if !metadata.is_file() || is_slow || !Filesystem::opens_at_once(&metadata.known()) {
        return None;
    }
    let fd = open(&held, &metadata, OFlags::RDONLY | OFlags::NONBLOCK).ok()?;
    // Rings honour O_NONBLOCK.
    let cleared = rustix::fs::fcntl_setfl(&fd, OFlags::empty()).is_ok();
    cleared.then_some(Ok((fd, metadata)))
}
