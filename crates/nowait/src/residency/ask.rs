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
    if len == 0 {
        return Held::Whole;
    }
    match chosen(handle) {
        Chosen::Cachestat => ask_cachestat(handle.as_fd(), offset, len as u64),
        Chosen::Mincore(mapped) => ask_mincore(handle.as_fd(), mapped, offset, len as u64),
        Chosen::Nobody(_) => Held::Unknown,
    }
}

fn ask_cachestat(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Held {
    match cachestat(fd, offset, len) {
        Ok(stat) if stat.cached >= pages(offset, len) => Held::Whole,
        // Pages beyond the end of the file are never there, and nobody misses them.
        Ok(stat) => match stat::size(fd).map(|size| size.saturating_sub(offset).min(len)) {
            Ok(rest) if stat.cached >= pages(offset, rest) => Held::Whole,
            _ => Held::Not,
        },
        Err(_) => Held::Unknown,
    }
}

fn ask_mincore(fd: BorrowedFd<'_>, mapped: &Mapped, offset: u64, len: u64) -> Held {
    let Ok(shape) = stat::shape(fd) else {
        return Held::Unknown;
    };
    let rest = shape.size.saturating_sub(offset).min(len);
    let count = pages(offset, rest);
    if count == 0 {
        return Held::Whole;
    }
    let mut few = [0u8; 64];
    let mut many = Vec::new();
    let resident = if count <= few.len() as u64 {
        &mut few[..count as usize]
    } else {
        many.resize(count as usize, 0);
        &mut many[..]
    };
    let first = offset / page_size();
    match mapped.look(fd, &shape, first..first + count, resident) {
        Ok(()) if resident.iter().all(|p| p & 1 == 1) => Held::Whole,
        Ok(()) => Held::Not,
        Err(_) => Held::Unknown,
    }
}
