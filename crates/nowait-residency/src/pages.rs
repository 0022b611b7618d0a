//! Pages of a byte range.

use std::ops::Range;

/// The number of pages that `len` bytes from `offset` on touch.
pub fn pages(offset: u64, len: u64) -> u64 {
    if len == 0 {
        0
    } else {
        offset.saturating_add(len - 1) / page_size() - offset / page_size() + 1
    }
}

pub(crate) fn pages_of(range: &Range<u64>) -> u64 {
    pages(range.start, range.end - range.start)
}

/// The size of a page in bytes. All counts of pages use this unit.
pub fn page_size() -> u64 {
    crate::sys::process::page_size() as u64
}
