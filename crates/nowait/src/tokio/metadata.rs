//! stat(2) and its like in the calling thread, if they do not block.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nowait_residency::magic;
use rustix::fs::{CWD, FileType, OFlags, Statx, StatxAttributes, StatxFlags, StatxTimestamp};
use rustix::path::Arg;

use super::budget::in_turn;
use crate::handle::Handle;
use crate::kernel::filesystem::Filesystem;
use crate::sys::Errno;
use crate::sys::resolve::resolve_cached;
use crate::sys::stat::{Known, as_std, known, statx};

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

/// The target of a symbolic link, if the kernel has it in memory with the inode.
pub(super) fn target(path: &Path) -> Option<io::Result<PathBuf>> {
    let (link, file) = match find(CWD, path, OFlags::NOFOLLOW)? {
        Ok(found) => found,
        Err(error) => return Some(Err(error)),
    };
    let stat = statx(link.as_fd(), StatxFlags::BASIC_STATS).ok()?;
    let magic = Filesystem::that_opens_at_once(&file)?.magic();
    if file.kind != FileType::Symlink || !has_target_in_memory(magic, &stat) || is_atime_due(&stat)
    {
        return None;
    }
    let target = rustix::fs::readlinkat(&link, c"", Vec::new()).ok()?;
    Some(Ok(std::ffi::OsString::from_vec(target.into_bytes()).into()))
}

/// Returns true if reading a symbolic link with this metadata reads no block. ext4 has up to 59 bytes of the target in memory
/// with the inode, and others, with inline data, in the block of the inode.
fn has_target_in_memory(magic: u64, stat: &Statx) -> bool {
    let is_encrypted = stat.stx_attributes.contains(StatxAttributes::ENCRYPTED);
    let most = match magic {
        magic::EXT4 => 59,
        magic::XFS | magic::TMPFS => u64::MAX,
        _ => return false,
    };
    !is_encrypted && stat.stx_blocks == 0 && stat.stx_size <= most
}

/// Returns true if readlinkat(2) would set the access time, which may wait for the journal: it is before the last change, or a
/// day old (mount option `relatime`).
fn is_atime_due(stat: &Statx) -> bool {
    const DAY: i64 = 24 * 60 * 60;
    let time = |it: StatxTimestamp| (it.tv_sec, it.tv_nsec);
    let accessed = time(stat.stx_atime);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |it| it.as_secs().cast_signed());
    accessed <= time(stat.stx_mtime) || accessed <= time(stat.stx_ctime) || now - accessed.0 >= DAY
}

/// The metadata of an open file. `None` if the filesystem might have to ask a server.
pub(super) fn of_file(handle: &Handle) -> Option<io::Result<Metadata>> {
    let at_once = handle.filesystem().stats_at_once();
    at_once.then(|| as_std(handle.as_fd(), File::metadata))
}

/// The file at a path relative to a directory, opened with O_PATH. The only error is ENOENT.
fn find(
    directory: BorrowedFd<'_>,
    path: impl Arg,
    follow: OFlags,
) -> Option<io::Result<(OwnedFd, Known)>> {
    let file = match resolve_cached(directory, path, OFlags::PATH | follow) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Some(Err(Errno::NOENT.into())),
        Err(_) => return None,
    };
    let known = known(file.as_fd()).ok()?;
    // The standard library's fstat(2) of a file of overlayfs asks its lower layer, too.
    Filesystem::fstats_in_memory(&known).then_some(Ok((file, known)))
}

/// Records the filesystem of a path, and of the target of a link, after a worker has asked for the metadata: the kernel has
/// the path in memory then.
pub(super) fn remember(path: &Path) {
    for follow in [OFlags::empty(), OFlags::NOFOLLOW] {
        if let Ok(file) = resolve_cached(CWD, path, OFlags::PATH | follow) {
            remember_file(&file);
        }
    }
}

/// Records the filesystem of a file that is open with O_PATH.
pub(super) fn remember_file(file: &OwnedFd) {
    if let Ok(known) = known(file.as_fd()) {
        Filesystem::remember_for_stat(file.as_fd(), &known);
    }
}

fn of(file: &OwnedFd) -> io::Result<Metadata> {
    as_std(file.as_fd(), File::metadata)
}
