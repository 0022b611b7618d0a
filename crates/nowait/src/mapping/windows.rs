//! The windows of one mapped file: their addresses, and which of them are resident.
#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
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
    /// The state of each window, after the mark of this process: 1, and 0 in a forked child.
    /// Nothing writes the mark again.
    states: Wiped<AtomicI32>,
    /// Set when no window may become resident any more.
    closed: AtomicBool,
    /// The number of loaded, evicted and copied windows.
    pub(super) loaded: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) copied: AtomicU64,
}

/// Bytes of a range of windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes {
    bytes: *const [u8],
    /// The mark of the windows.
    mark: NonNull<AtomicI32>,
}

impl Bytes {
    /// The bytes. They are empty in a forked child, where the memory shows whatever the file has.
    ///
    /// # Safety
    /// The windows exist, and the range is resident and borrowed until the result is dropped.
    #[inline(always)]
    pub(super) unsafe fn get<'a>(self) -> &'a [u8] {
        // SAFETY: the mark is part of the windows.
        let mark = unsafe { self.mark.as_ref() };
        if mark.load(Ordering::Relaxed) == 0 {
            return &[];
        }
        // SAFETY: borrowed windows stay mapped, and their bytes do not change.
        unsafe { &*self.bytes }
    }
}

impl Windows {
    /// Maps `len` bytes of a file.
    pub(super) fn new(fd: BorrowedFd<'_>, len: usize, window: usize) -> Result<Windows, Errno> {
        let shift = window.trailing_zeros();
        let pages = len.checked_next_multiple_of(page_size());
        let states = Wiped::<AtomicI32>::new(len.div_ceil(1 << shift) + 1)?;
        states[0].store(1, Ordering::Relaxed);
        Ok(Windows {
            region: Region::map(fd, pages.ok_or(Errno::NOMEM)?)?,
            len,
            window,
            shift,
            states,
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

    /// The bytes of a range of the file, which the file has.
    #[inline(always)]
    pub(super) fn bytes_at(&self, start: usize, end: usize) -> Bytes {
        let first = self.region.start().wrapping_add(start);
        Bytes {
            bytes: std::ptr::slice_from_raw_parts(first, end.wrapping_sub(start)),
            mark: self.states.start(),
        }
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
        unsafe { self.states.get_unchecked(window + 1) }
    }

    /// The state of a window.
    pub(super) fn state(&self, window: usize) -> i32 {
        let state = self.states.get(window + 1);
        state.map_or(ABSENT, |state| state.load(Ordering::Acquire))
    }

    pub(super) fn set(&self, window: usize, state: i32) {
        if let Some(at) = self.states.get(window + 1) {
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
