//! Opening a file in the calling thread, where that waits for nothing.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, OFlags, ResolveFlags, StatxAttributes, StatxFlags};

use crate::filesystem::Filesystem;

/// Opens a file for reading in the caller if that waits for nothing; `None` if it might, or failed:
/// then the engine opens it, and says why not.
///
/// The kernel resolves the path from its caches or gives up (`RESOLVE_CACHED`, openat2(2), 5.12).
/// That alone is not enough. To open a fifo waits for its other end, a device may have to be moved, a
/// server asked: so the path is only looked at first (O_PATH), and what is not a regular file on a
/// filesystem of which more is known is left to the engine; encrypted files and those with
/// verity too, whose keys and hashes have to be read. O_NONBLOCK keeps it from waiting for a lease
/// (fcntl(2)); nothing keeps it from waiting for whoever has to permit it (fanotify(7)).
pub(crate) fn open_cached(path: &Path) -> Option<OwnedFd> {
    let open = |flags| {
        let none = rustix::fs::Mode::empty();
        let flags = flags | OFlags::CLOEXEC;
        rustix::fs::openat2(CWD, path, flags, none, ResolveFlags::CACHED).ok()
    };
    let seen = open(OFlags::PATH)?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(&seen, c"", flags, StatxFlags::TYPE).ok()?;
    let is_regular = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
    let slow = StatxAttributes::ENCRYPTED | StatxAttributes::VERITY;
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    if !is_regular(stat.stx_mode.into())
        || stat.stx_attributes.intersects(slow)
        || !Filesystem::opens_at_once(device)
    {
        return None;
    }
    let fd = open(OFlags::RDONLY | OFlags::NONBLOCK)?;
    // It may have been replaced meanwhile. And a ring takes O_NONBLOCK at its word.
    let same = is_regular(rustix::fs::fstat(&fd).ok()?.st_mode);
    let cleared = rustix::fs::fcntl_setfl(&fd, OFlags::empty()).is_ok();
    (same && cleared).then_some(fd)
}
