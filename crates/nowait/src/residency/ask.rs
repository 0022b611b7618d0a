//! The read path's question: is all of this range there? As quick as it can be asked.

use std::os::fd::BorrowedFd;

use once_cell::race::OnceBox;

use super::answer::Reason;
use super::choice::{SourceChoice, choose};
use super::mapped::Mapped;
use super::pages::{page_size, pages};
use crate::sys::residency::cachestat;
use crate::sys::{Errno, stat};

/// Whether a range is resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// Every page of it that the file has.
    Full,
    /// Some page is not there.
    Partial,
    /// Nobody can say.
    Unknown,
}

/// The residency source of one open file, choice at the first question. Boxed, so that files that
/// never ask stay small.
#[derive(Debug, Default)]
pub(crate) struct SourceCache(OnceBox<SourceChoice>);

impl SourceCache {
    /// The source of the file that `fd` refers to: always the same file.
    pub(super) fn choice(&self, fd: BorrowedFd<'_>) -> &SourceChoice {
        self.0.get_or_init(|| {
            let none =
                |errno: Errno| SourceChoice::Unavailable(Reason::NoCall(errno.raw_os_error()));
            Box::new(choose(fd).unwrap_or_else(none))
        })
    }

    /// Whether there is a source that tells the truth.
    pub(crate) fn is_available(&self, fd: BorrowedFd<'_>) -> bool {
        !matches!(self.choice(fd), SourceChoice::Unavailable(_))
    }

    /// Whether all of `offset..offset + len` that lies within the file is in the page cache.
    pub(crate) fn ask(&self, fd: BorrowedFd<'_>, offset: u64, len: usize) -> Coverage {
        match whole(fd, self.choice(fd), offset, len as u64) {
            Ok(true) => Coverage::Full,
            Ok(false) => Coverage::Partial,
            Err(_) => Coverage::Unknown,
        }
    }
}

/// Whether all of `offset..offset + len` that lies within the file is in the page cache.
///
/// # Errors
/// What the kernel says; ENOSYS if there is nobody to ask.
pub(super) fn whole(
    fd: BorrowedFd<'_>,
    choice: &SourceChoice,
    offset: u64,
    len: u64,
) -> Result<bool, Errno> {
    match choice {
        SourceChoice::Unavailable(_) => Err(Errno::NOSYS),
        _ if len == 0 => Ok(true),
        SourceChoice::Cachestat => whole_counted(fd, offset, len),
        SourceChoice::Mincore(mapped) => whole_looked_up(fd, mapped, offset, len),
    }
}

fn whole_counted(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<bool, Errno> {
    let cached = cachestat(fd, offset, len)?.cached;
    if cached >= pages(offset, len) {
        return Ok(true);
    }
    // Pages beyond the end of the file are never there, and nobody misses them.
    let rest = stat::shape(fd)?.size.saturating_sub(offset).min(len);
    Ok(cached >= pages(offset, rest))
}

fn whole_looked_up(
    fd: BorrowedFd<'_>,
    mapped: &Mapped,
    offset: u64,
    len: u64,
) -> Result<bool, Errno> {
    let shape = stat::shape(fd)?;
    let rest = shape.size.saturating_sub(offset).min(len);
    let mut next = offset / page_size();
    let end = next + pages(offset, rest);
    let mut resident = [0u8; 64];
    while next < end {
        let some = &mut resident[..(end - next).min(64) as usize];
        let after = next + some.len() as u64;
        mapped.look(fd, &shape, next..after, some)?;
        if some.iter().any(|p| p & 1 == 0) {
            return Ok(false);
        }
        next = after;
    }
    Ok(true)
}
