//! A window: aligned memory through which a misaligned read of an O_DIRECT file goes.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::alignment::Alignment;
use crate::cast::to_usize;

/// A window is at most so many bytes, or one block if those are larger.
const MAX_WINDOW: usize = 1 << 20;

/// Aligned memory that moves over a file, block by block, and covers what a read wants.
#[derive(Debug)]
pub(crate) struct Window {
    memory: NonNull<u8>,
    layout: Layout,
    block: u64,
}

// SAFETY: the memory is its own; nothing else points to it but operations that own the window.
unsafe impl Send for Window {}
// SAFETY: shared, it can only be looked at.
unsafe impl Sync for Window {}

impl Window {
    /// A window for a read of `len` bytes. `None` if no memory can be of that alignment.
    pub(crate) fn new(needed: Alignment, len: usize) -> Option<Window> {
        let block = needed.read_offset as usize;
        let most = MAX_WINDOW.next_multiple_of(block);
        // What is wanted may begin and end within a block.
        let room = len.min(most).next_multiple_of(block).saturating_add(block);
        let size = room.min(most);
        let layout = Layout::from_size_align(size, needed.memory.max(8) as usize).ok()?;
        // SAFETY: the size is at least one block, which is not zero.
        let memory = NonNull::new(unsafe { alloc(layout) });
        let memory = memory.unwrap_or_else(|| handle_alloc_error(layout));
        Some(Window {
            memory,
            layout,
            block: block as u64,
        })
    }

    /// Where it has to lie in the file to cover what is wanted from `at` to `end`, or the first part of
    /// it: memory, length, and the offset in the file.
    pub(crate) fn over(&self, at: u64, end: u64) -> (*mut u8, usize, u64) {
        let from = at - at % self.block;
        let to = end.checked_next_multiple_of(self.block).unwrap_or(end);
        let len = to_usize((to - from).min(self.layout.size() as u64));
        (self.memory.as_ptr(), len, from)
    }

    /// How many bytes a read of `n` bytes into the window over `at` brought from `at` on, of `left`.
    pub(crate) fn wanted(&self, n: usize, at: u64, left: usize) -> usize {
        n.saturating_sub(to_usize(at % self.block)).min(left)
    }

    /// Hands out what a read of `n` bytes into the window over `at` brought from `at` on, at most `left`
    /// bytes; returns how many.
    ///
    /// # Safety
    /// `into` must be valid for writes of `left` bytes, and the kernel must have filled the first `n` bytes
    /// of the window.
    pub(crate) unsafe fn hand_out(&self, n: usize, at: u64, into: *mut u8, left: usize) -> usize {
        let skip = to_usize(at % self.block);
        let got = self.wanted(n, at, left);
        if got > 0 {
            // SAFETY: `skip + got` is at most `n`, which lies within the window; the rest is the
            // caller's promise.
            unsafe { into.copy_from_nonoverlapping(self.memory.as_ptr().add(skip), got) };
        }
        got
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed nowhere else.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}
