//! The choice of the residency source of a file, for single queries and for the read path.

use rustix::fs::FileType;
use std::os::fd::BorrowedFd;

use crate::answer::{Reason, Source};
use crate::magic;
use crate::mapped::{Failed, Mapped};
use crate::sys::Errno;
use crate::sys::page_cache::cachestat;
use crate::sys::stat;

/// Filesystems whose files may be served from the pages of other files, which cachestat(2) does not
/// count. EROFS does that if it is mounted with `inode_share` (Linux 7.0). mincore(2) is used on its
/// other mounts, too: on a mapping that is kept, it takes about a microsecond, and less than a look at the mount's options.
const LAYERED: [u64; 3] = [magic::OVERLAYFS, magic::FUSE, magic::EROFS];

/// The residency source of a file.
#[derive(Debug)]
pub(crate) enum SourceChoice {
    /// cachestat(2).
    Cachestat,
    /// mincore(2) on this mapping of the file.
    Mincore(Mapped),
    /// No source.
    Unavailable(Reason),
}

/// Chooses the source.
///
/// ```text
///   no pages: directory, pipe, … ──────────────────────────────► NotAFile
///   hugetlbfs: always there, never counted ────────────────────► HugePages
///   cachestat, where the filesystem's own pages are read ── ok ► Cachestat
///     └ overlayfs, FUSE, EROFS; ENOSYS, EPERM, …
///         map the file ── refused ─────────────────────────────► NotReadable, NoMapping, NotReopened
///           └ mincore of a page that can't be there ── denied ─► NoCall
///                 ├ "resident": it says so of everything ──────► NotOurs
///                 └ "not resident" ────────────────────────────► Mincore
/// ```
///
/// # Errors
/// EBADF if the descriptor permits no query (`O_PATH`).
pub(crate) fn choose(fd: BorrowedFd<'_>) -> Result<SourceChoice, Errno> {
    let shape = stat::shape(fd)?;
    let filesystem = stat::magic(fd)?;
    if !matches!(shape.kind, FileType::RegularFile | FileType::BlockDevice) {
        return Ok(SourceChoice::Unavailable(Reason::NotAFile));
    }
    if filesystem == magic::HUGETLBFS {
        return Ok(SourceChoice::Unavailable(Reason::HugePages));
    }
    if !LAYERED.contains(&filesystem) {
        match cachestat(fd, 0, 1) {
            Ok(_) => return Ok(SourceChoice::Cachestat),
            Err(Errno::BADF) => return Err(Errno::BADF),
            Err(_) => {}
        }
    }
    believed(Mapped::new(fd, &shape, filesystem == magic::OVERLAYFS))
}

/// Chooses the source of a regular file of overlayfs that is open for reading only and had this change time before it was
/// opened.
///
/// # Errors
/// Those of [`choose`].
pub(crate) fn choose_layered(
    fd: BorrowedFd<'_>,
    changed_before: (i64, i64),
) -> Result<SourceChoice, Errno> {
    let shape = stat::shape(fd)?;
    believed(Mapped::of_opened(fd, &shape, changed_before))
}

/// A mapping of the file, if mincore(2) is correct for it.
fn believed(mapped: Result<Mapped, Failed>) -> Result<SourceChoice, Errno> {
    match mapped.map(Mapped::checked) {
        Ok(Ok(mapped)) => Ok(SourceChoice::Mincore(mapped)),
        Ok(Err(reason)) => Ok(SourceChoice::Unavailable(reason)),
        Err(Failed::Map(Errno::BADF)) => Err(Errno::BADF),
        Err(failed) => Ok(SourceChoice::Unavailable(failed.into())),
    }
}

/// The given source, even if it is wrong for the file.
pub(crate) fn only(source: Source, fd: BorrowedFd<'_>) -> Result<SourceChoice, Errno> {
    match source {
        Source::Cachestat => cachestat(fd, 0, 1).map(|_| SourceChoice::Cachestat),
        Source::Mincore => {
            let layered = stat::magic(fd)? == magic::OVERLAYFS;
            match Mapped::new(fd, &stat::shape(fd)?, layered) {
                Ok(mapped) => Ok(SourceChoice::Mincore(mapped)),
                Err(Failed::Open(errno) | Failed::Map(errno)) => Err(errno),
            }
        }
    }
}
