//! stat(2) and its like in the calling thread, if they do not block.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, OFlags, Statx, StatxFlags};
use rustix::path::Arg;

use super::budget::in_turn;
use crate::handle::Handle;
use crate::kernel::filesystem::Filesystem;
use crate::sys::Errno;
use crate::sys::resolve::resolve_cached;
use crate::sys::stat::{Known, as_std, in_memory};

/// Asks for metadata within the task's cooperative budget.
pub(super) async fn at_once<M>(
    ask: impl FnOnce() -> Option<io::Result<M>>,
) -> Option<io::Result<M>> {
    in_turn(async { ask() }, |asked| asked.as_ref().map(|_| 0)).await
}

/// The metadata of a path. Here and below: `None` if the kernel does not have its names in memory, if the
/// filesystem might have to ask a device or a server, or for an error other than ENOENT. Then a worker asks.
pub(super) fn of_path(path: &Path) -> Option<io::Result<Metadata>> {
    Some(find(CWD, path, OFlags::empty())?.and_then(|(file, _)| of(&file)))
}

/// The metadata of a path. A symbolic link at its end is not followed.
pub(super) fn of_link(path: &Path) -> Option<io::Result<Metadata>> {
    of_name(CWD, path.as_os_str())
}

/// The metadata of a name in a directory. A symbolic link is not followed.
pub(super) fn of_name(directory: BorrowedFd<'_>, name: &OsStr) -> Option<io::Result<Metadata>> {
    Some(find(directory, name, OFlags::NOFOLLOW)?.and_then(|(file, _)| of(&file)))
}

/// Returns true if the path exists.
pub(super) fn exists(path: &Path) -> Option<io::Result<bool>> {
    Some(Ok(find(CWD, path, OFlags::empty())?.is_ok()))
}

/// The target of a symbolic link. The kernel has it in memory if it is part of the inode, and then the link has no
/// blocks.
pub(super) fn target(path: &Path) -> Option<io::Result<PathBuf>> {
    let (link, stat) = match find(CWD, path, OFlags::NOFOLLOW)? {
        Ok(found) => found,
        Err(error) => return Some(Err(error)),
    };
    let is_link = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Symlink;
    if !is_link || stat.stx_blocks != 0 {
        return None;
    }
    let target = rustix::fs::readlinkat(&link, c"", Vec::new()).ok()?;
    Some(Ok(std::ffi::OsString::from_vec(target.into_bytes()).into()))
}

/// The metadata of an open file. `None` if the filesystem might have to ask a server.
pub(super) fn of_file(handle: &Handle) -> Option<io::Result<Metadata>> {
    let at_once = handle.filesystem().stats_at_once();
    at_once.then(|| as_std(handle.as_fd(), File::metadata))
}

/// The file at a path relative to a directory, opened with O_PATH, and its metadata. The only error is ENOENT.
fn find(
    directory: BorrowedFd<'_>,
    path: impl Arg,
    follow: OFlags,
) -> Option<io::Result<(OwnedFd, Statx)>> {
    let file = match resolve_cached(directory, path, OFlags::PATH | follow) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Some(Err(Errno::NOENT.into())),
        Err(_) => return None,
    };
    let stat = in_memory(file.as_fd(), StatxFlags::BLOCKS).ok()?;
    Filesystem::stats_in_memory(&Known::of(&stat)).then_some(Ok((file, stat)))
}

fn of(file: &OwnedFd) -> io::Result<Metadata> {
    as_std(file.as_fd(), File::metadata)
}
