//! Residency: which pages of a file are in the page cache.

use std::ffi::{c_int, c_uchar};

use libc::{off_t, size_t, ssize_t};
use nowait::residency::{Answer, Source, page_map, page_size, residency, resident_prefix};

use crate::guard::{Extensible, Outcome, copy_out, failed, guard_with_errno};
use crate::rw::descriptor;

/// The pages of a range, by their state. `size` is set by the program to sizeof(struct
/// nw_residency).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct nw_residency {
    /// sizeof(struct nw_residency).
    pub size: size_t,
    /// Pages of the file that the range touches.
    pub pages: u64,
    /// Pages that are cached.
    pub cached: u64,
    /// Cached pages that are changed and not yet being written to the device.
    pub dirty: u64,
    /// Cached pages that are being written to the device.
    pub writeback: u64,
    /// Pages that were cached and were evicted, as far as the kernel remembers.
    pub evicted: u64,
    /// Evicted pages that would be kept if they were read again.
    pub recently_evicted: u64,
    /// Pages of large holes that were not asked about, and count as not cached.
    pub unasked: u64,
    /// NW_SOURCE_CACHESTAT or NW_SOURCE_MINCORE.
    pub source: u32,
    /// 1 if dirty, writeback, evicted and recently_evicted were counted. mincore(2) does not count
    /// them.
    pub has_states: u32,
}

// SAFETY: integers, and the size comes first.
unsafe impl Extensible for nw_residency {}

/// cachestat(2) has answered.
pub const NW_SOURCE_CACHESTAT: u32 = 1;
/// mincore(2) has answered.
pub const NW_SOURCE_MINCORE: u32 = 2;

/// The value, or EOPNOTSUPP if no source is correct for the file.
fn known<T>(answer: Answer<T>) -> Outcome<T> {
    answer.known().ok_or(libc::EOPNOTSUPP)
}

/// The start and the length of a range. EINVAL if one is negative.
fn range(offset: off_t, len: size_t) -> Outcome<(u64, u64)> {
    let offset = u64::try_from(offset).map_err(|_| libc::EINVAL)?;
    if len > isize::MAX as usize {
        return Err(libc::EINVAL);
    }
    Ok((offset, len as u64))
}

/// The number of bytes from offset on that are in the page cache without a gap, at most len. If
/// page_map is not null, its bytes are set to 1 for each cached page that the range touches, and to
/// 0 for others; it has a byte for each page, as the vector of mincore(2). Returns −EOPNOTSUPP if
/// the residency is unknown. See nw_fincore(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_fincore(
    fd: c_int,
    page_map: *mut c_uchar,
    offset: off_t,
    len: size_t,
) -> ssize_t {
    guard_with_errno(|| {
        let (start, len) = range(offset, len)?;
        if len == 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: the C program's promise: the manual page.
        let fd = unsafe { descriptor(fd)? };
        if page_map.is_null() {
            let prefix = known(resident_prefix(fd, start, len).map_err(failed)?)?;
            return Ok(prefix as ssize_t);
        }
        let end = start.checked_add(len).ok_or(libc::EINVAL)?;
        let map = known(self::page_map(fd, start..end).map_err(failed)?)?;
        let page = page_size() as u64;
        let (first, last) = (start / page, (end - 1) / page);
        // SAFETY: the C program's promise: a byte for each page that the range touches.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(page_map, (last - first + 1) as usize) };
        bytes.fill(0);
        for run in map.resident() {
            let pages = run.start / page - first..(run.end - 1) / page - first + 1;
            bytes[pages.start as usize..pages.end as usize].fill(1);
        }
        Ok(map.resident_prefix() as ssize_t)
    })
}

/// nw_fincore without a map: the number of bytes from offset on that are in the page cache without
/// a gap. See nw_fincore(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_resident_prefix(fd: c_int, offset: off_t, len: size_t) -> ssize_t {
    guard_with_errno(|| {
        let (start, len) = range(offset, len)?;
        // SAFETY: the C program's promise: the manual page.
        let fd = unsafe { descriptor(fd)? };
        let prefix = known(resident_prefix(fd, start, len).map_err(failed)?)?;
        Ok(prefix as ssize_t)
    })
}

/// Counts the pages of a range by their state: cached, dirty, being written, evicted. Returns 0,
/// −EOPNOTSUPP if the residency is unknown, or another −errno. See nw_fincore(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_residency(
    fd: c_int,
    offset: off_t,
    len: size_t,
    residency: *mut nw_residency,
) -> c_int {
    guard_with_errno(|| {
        let (start, len) = range(offset, len)?;
        // SAFETY: the C program's promise: the manual page.
        let fd = unsafe { descriptor(fd)? };
        let end = start.checked_add(len).ok_or(libc::EINVAL)?;
        let answer = self::residency(fd, start..end).map_err(failed)?;
        let Answer::Known { value, source } = answer else {
            return Err(libc::EOPNOTSUPP);
        };
        let counted = nw_residency {
            size: 0,
            pages: value.pages,
            cached: value.cached,
            dirty: value.dirty.unwrap_or(0),
            writeback: value.writeback.unwrap_or(0),
            evicted: value.evicted.unwrap_or(0),
            recently_evicted: value.recently_evicted.unwrap_or(0),
            unasked: value.unasked,
            source: match source {
                Source::Cachestat => NW_SOURCE_CACHESTAT,
                Source::Mincore => NW_SOURCE_MINCORE,
            },
            has_states: u32::from(value.dirty.is_some()),
        };
        // SAFETY: the C program's promise: the manual page.
        unsafe { copy_out(&counted, residency) }.map(|()| 0)
    })
}
