//! stat(2) and fstat(2) in the calling thread, if they do not block.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{CWD, OFlags};

use super::budget::in_turn;
use crate::handle::Handle;
use crate::kernel::filesystem::Filesystem;
use crate::sys::Errno;
use crate::sys::resolve::resolve_cached;
use crate::sys::stat::{as_std, known};

/// Asks for metadata within the task's cooperative budget.
pub(super) async fn at_once<M>(
    ask: impl FnOnce() -> Option<io::Result<M>>,
) -> Option<io::Result<M>> {
    in_turn(async { ask() }, |asked| asked.as_ref().map(|_| 0)).await
}

/// The metadata of a path. `None` if the kernel does not have its names in memory, if the
/// filesystem might have to ask a device or a server, or for an error other than ENOENT. Then a
/// worker asks.
pub(super) fn of_path(path: &Path) -> Option<io::Result<Metadata>> {
    let file = match resolve_cached(CWD, path, OFlags::PATH) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Some(Err(Errno::NOENT.into())),
        Err(_) => return None,
    };
    let known = known(file.as_fd()).ok()?;
    Filesystem::opens_at_once(&known).then(|| as_std(file.as_fd(), File::metadata))
}

/// The metadata of an open file. `None` if the filesystem might have to ask a server.
pub(super) fn of_file(handle: &Handle) -> Option<io::Result<Metadata>> {
    let at_once = handle.filesystem().stats_at_once();
    at_once.then(|| as_std(handle.as_fd(), File::metadata))
}
