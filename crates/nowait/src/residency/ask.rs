//! The read path's question: is all of this range there? As quick as it can be asked.

use std::os::fd::{AsFd, BorrowedFd};

use super::chosen::{Chosen, choose};
use super::mapped::Mapped;
use super::{Reason, page_size, pages};
use crate::handle::Handle;
use crate::sys::residency::cachestat;
use crate::sys::{Errno, stat};

/// Whether a range is resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Every page of it that the file has.
    Whole,
    /// Some page is not there.
    Not,
    /// Nobody can say.
    Unknown,
}

/// Who answers for this handle. Chosen once.
pub(super) fn chosen(handle: &Handle) -> &Chosen {
    handle.residency().get_or_init(|| {
        let nobody = |errno: Errno| Chosen::Nobody(Reason::NoCall(errno.raw_os_error()));
        Box::new(choose(handle.as_fd()).unwrap_or_else(nobody))
    })
}

/// Whether this file's residency can be asked for at all.
pub(crate) fn can_ask(handle: &Handle) -> bool {
    !matches!(chosen(handle), Chosen::Nobody(_))
}

/// Whether all of `offset..offset + len` that lies within the file is in the page cache.
pub(crate) fn ask(handle: &Handle, offset: u64, len: usize) -> Held {
    match whole(handle.as_fd(), chosen(handle), offset, len as u64) {
        Ok(true) => Held::Whole,
        Ok(false) => Held::Not,
        Err(_) => Held::Unknown,
    }
}

/// The same of anybody's file.
///
/// # Errors
/// What the kernel says; ENOSYS if there is nobody to ask.
pub(super) fn whole(
    fd: BorrowedFd<'_>,
    chosen: &Chosen,
    offset: u64,
    len: u64,
) -> Result<bool, Errno> {
    match chosen {
        Chosen::Nobody(_) => Err(Errno::NOSYS),
        _ if len == 0 => Ok(true),
        Chosen::Cachestat => whole_counted(fd, offset, len),
        Chosen::Mincore(mapped) => whole_looked_up(fd, mapped, offset, len),
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
