//! The windows of one mapped file: their addresses, and which of them are resident.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::sys::Errno;
use crate::sys::mapping::Region;
use crate::sys::process::page_size;
use crate::sys::wiped::Wiped;

/// The state of a window that is not resident. The kernel sets it in a forked child.
pub(super) const ABSENT: i32 = 0;
/// The state of a window that is being loaded. Any other number but 0 is the name of its frame.
pub(super) const LOADING: i32 = i32::MIN;

/// The windows of a mapped file. All but the last have the same size.
#[derive(Debug)]
pub(crate) struct Windows {
    region: Region,
    /// The length of the file in bytes.
    len: usize,
    /// The size of a window, a power of two, and its binary logarithm.
    window: usize,
    shift: u32,
    states: Wiped<AtomicI32>,
    /// Set when no window may become resident any more.
    closed: AtomicBool,
    /// The number of loaded, evicted and copied windows.
    pub(super) loaded: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) copied: AtomicU64,
}

impl Windows {
    pub(super) fn new(len: usize, window: usize) -> Result<Windows, Errno> {
        let shift = window.trailing_zeros();
        let pages = len.checked_next_multiple_of(page_size());
        let reserved = pages.ok_or(Errno::NOMEM)?.max(page_size());
        Ok(Windows {
            region: Region::reserve(reserved)?,
            len,
            window,
            shift,
            states: Wiped::new(len.div_ceil(1 << shift))?,
            closed: AtomicBool::new(false),
            loaded: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            copied: AtomicU64::new(0),
        })
    }

    /// The length of the file in bytes.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The addresses of a range of the file, which the file has.
    #[inline(always)]
    pub(super) fn addresses(&self, start: usize, end: usize) -> *const [u8] {
        let first = self.region.start().wrapping_add(start);
        std::ptr::slice_from_raw_parts(first, end.wrapping_sub(start))
    }

    /// The window that contains this byte.
    #[inline(always)]
    pub(super) fn at(&self, offset: usize) -> usize {
        offset >> self.shift
    }

    /// Returns true if both bytes are in one window.
    #[inline(always)]
    pub(super) fn are_together(&self, one: usize, other: usize) -> bool {
        one ^ other < self.window
    }

    /// The state of a window, to borrow it.
    ///
    /// # Safety
    /// The window contains a byte of the file.
    #[inline(always)]
    pub(super) unsafe fn borrowable(&self, window: usize) -> &AtomicI32 {
        // SAFETY: `new` made a state for each window of the file.
        unsafe { self.states.get_unchecked(window) }
    }

    /// The state of a window.
    pub(super) fn state(&self, window: usize) -> i32 {
        let state = self.states.get(window);
        state.map_or(ABSENT, |state| state.load(Ordering::Acquire))
    }

    pub(super) fn set(&self, window: usize, state: i32) {
        if let Some(at) = self.states.get(window) {
            at.store(state, Ordering::Release);
        }
    }

    /// The bytes of a window, in whole pages.
    pub(super) fn bytes(&self, window: usize) -> Range<usize> {
        let start = window << self.shift;
        let end = (start + (1 << self.shift)).min(self.len);
        start..end.next_multiple_of(page_size())
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}
