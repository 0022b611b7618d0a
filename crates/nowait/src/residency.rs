//! Residency: which pages of a file are in the page cache, asked without reading any.
//!
//! cachestat(2) where it tells the truth; else mincore(2) on a mapping, where *that* does; else
//! the honest answer "unknown".

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use rustix::fs::{Access, AtFlags};

use crate::handle::Handle;
use crate::kernel::Kernel;
use crate::sys::residency::{Mapping, cachestat};
use crate::sys::{self, Errno};

/// Whether a range is resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Every page of it that the file has.
    Resident,
    /// Some page is not there.
    Missing,
    /// Nobody can say.
    Unknown,
}

/// How a file's residency can be asked for.
#[derive(Debug)]
pub(crate) enum Source {
    /// cachestat(2).
    Cachestat,
    /// mincore(2) on this mapping of the file, made once and never touched.
    Mincore(Mapping),
    /// Not at all.
    Nothing,
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping({} bytes)", self.len())
    }
}

/// A handle's source of residency, chosen at the first question. Boxed, so that the many files
/// that never ask stay small.
pub(crate) type Chosen = OnceLock<Box<Source>>;

/// Room for a mapped file to grow before its new end has to be mapped by the way.
const GROWTH: u64 = 16 << 20;

/// Chooses the source for a handle: cachestat answers 0 on overlayfs whatever is cached, and newer
/// kernels deny it for files one may not write; mincore calls everything resident there.
fn choose(handle: &Handle) -> Source {
    let fd = handle.as_fd();
    if Kernel::get().cachestat.is_yes()
        && !handle.filesystem().is_overlay()
        && cachestat(fd, 0, 1).is_ok()
    {
        return Source::Cachestat;
    }
    match (may_know(fd), sys::stat::size(fd)) {
        (true, Ok(size)) => {
            let len = (size + GROWTH).next_multiple_of(page() as u64);
            usize::try_from(len)
                .ok()
                .and_then(|len| Mapping::new(fd, 0, len).ok())
                .map_or(Source::Nothing, Source::Mincore)
        }
        _ => Source::Nothing,
    }
}

/// Whether mincore(2) tells us the truth: since 5.2 it calls every page resident unless the caller
/// owns the file or may write it.
fn may_know(fd: BorrowedFd<'_>) -> bool {
    let owner =
        rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw());
    owner
        || rustix::fs::accessat(
            rustix::fs::CWD,
            format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd)),
            Access::WRITE_OK,
            AtFlags::EACCESS,
        )
        .is_ok()
}

/// Whether this file's residency can be asked for at all.
pub(crate) fn can_ask(handle: &Handle) -> bool {
    !matches!(source(handle), Source::Nothing)
}

fn source(handle: &Handle) -> &Source {
    handle.residency().get_or_init(|| Box::new(choose(handle)))
}

/// Whether all of `offset..offset + len` that lies within the file is in the page cache.
pub(crate) fn ask(handle: &Handle, offset: u64, len: usize) -> Answer {
    if len == 0 {
        return Answer::Resident;
    }
    match source(handle) {
        Source::Cachestat => ask_cachestat(handle.as_fd(), offset, len),
        Source::Mincore(mapping) => ask_mincore(handle.as_fd(), mapping, offset, len),
        Source::Nothing => Answer::Unknown,
    }
}

fn ask_cachestat(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Answer {
    match cachestat(fd, offset, len as u64) {
        Ok(stat) if stat.cached >= pages(offset, len as u64) => Answer::Resident,
        // Pages beyond the end of the file are never there, and nobody misses them.
        Ok(stat) => match clipped(fd, offset, len) {
            Ok(0) => Answer::Resident,
            Ok(rest) if stat.cached >= pages(offset, rest) => Answer::Resident,
            _ => Answer::Missing,
        },
        Err(_) => Answer::Unknown,
    }
}

fn ask_mincore(fd: BorrowedFd<'_>, mapping: &Mapping, offset: u64, len: usize) -> Answer {
    let Ok(rest) = clipped(fd, offset, len) else {
        return Answer::Unknown;
    };
    if rest == 0 {
        return Answer::Resident;
    }
    let first = offset - offset % page() as u64;
    let span = (offset + rest - first) as usize;
    let fresh;
    let (mapping, start) = if first + span as u64 <= mapping.len() as u64 {
        (mapping, first as usize)
    } else {
        let Ok(new) = Mapping::new(fd, first, span) else {
            return Answer::Unknown;
        };
        fresh = new;
        (&fresh, 0)
    };
    let mut few = [0u8; 64];
    let mut many = Vec::new();
    let count = span.div_ceil(page());
    let resident = if count <= few.len() {
        &mut few[..count]
    } else {
        many.resize(count, 0);
        &mut many[..]
    };
    match mapping.mincore(start, span, resident) {
        Ok(()) if resident.iter().all(|p| p & 1 == 1) => Answer::Resident,
        Ok(()) => Answer::Missing,
        Err(_) => Answer::Unknown,
    }
}

/// How many of `len` bytes from `offset` on the file has.
fn clipped(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<u64, Errno> {
    Ok(sys::stat::size(fd)?.saturating_sub(offset).min(len as u64))
}

/// How many pages a range touches.
pub(crate) fn pages(offset: u64, len: u64) -> u64 {
    let page = page() as u64;
    if len == 0 {
        0
    } else {
        (offset + len - 1) / page - offset / page + 1
    }
}

fn page() -> usize {
    crate::sys::process::page_size()
}
