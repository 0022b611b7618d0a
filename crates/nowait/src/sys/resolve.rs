//! Resolving paths without waiting: openat2(2) with `RESOLVE_CACHED` (Linux 5.12).

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::path::Arg;

use super::Errno;

/// Opens a path with these flags, if the kernel resolves it from its caches. It fails with EAGAIN
/// otherwise. ENOENT comes from a cached entry for a name that does not exist: a call that may
/// block would return it, too.
pub(crate) fn resolve_cached(
    at: BorrowedFd<'_>,
    path: impl Arg,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat2(at, path, flags, Mode::empty(), ResolveFlags::CACHED)
}
