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

/// Opens a file for reading in the calling thread, if that does not block, and asks for its basic
/// metadata. Returns `None` if it might block or has failed: then the engine opens the file and
/// returns the error. The one error that is returned is ENOENT, if the kernel's cache of names says
/// so.
///
/// The kernel resolves the path from its caches or fails (`RESOLVE_CACHED`, openat2(2), Linux
/// 5.12). That is not sufficient: opening a FIFO waits for its other end, and opening a device or a
/// file on a network filesystem may wait as well. Therefore the path is first opened with O_PATH,
/// and then the same file with [`open_held`]. Everything except regular files on filesystems that
/// are known not to wait is left to the engine. So are encrypted files and files with verity, whose
/// keys and hashes must be read. O_NONBLOCK avoids waiting for a lease (fcntl(2)). A wait for a
/// permission event (fanotify(7)) cannot be avoided.
pub(crate) fn open_cached(
    path: &Path,
    descriptors: &Descriptors,
) -> Option<Result<(OwnedFd, Metadata), Errno>> {
    match resolve_cached(CWD, path, OFlags::PATH) {
        Ok(held) => open_resolved(path, &held, descriptors).map(Ok),
        Err(Errno::NOENT) => Some(Err(Errno::NOENT)),
        Err(_) => None,
    }
}

fn open_resolved(
    path: &Path,
    held: &OwnedFd,
    descriptors: &Descriptors,
) -> Option<(OwnedFd, Metadata)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(held, c"", flags, StatxFlags::BASIC_STATS).ok()?;
    let slow = StatxAttributes::ENCRYPTED | StatxAttributes::VERITY;
    let is_slow = stat.stx_attributes.intersects(slow);
    let metadata = Metadata::new(stat);
    if !metadata.is_file() || is_slow || !Filesystem::opens_at_once(metadata.dev()) {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let by_path = |flags| resolve_cached(CWD, path, flags);
    let fd = open_held(held, flags, descriptors, by_path).ok()?;
    // Rings honour O_NONBLOCK.
    let cleared = rustix::fs::fcntl_setfl(&fd, OFlags::empty()).is_ok();
    cleared.then_some((fd, metadata))
}
