//! A bounce buffer: aligned memory for misaligned reads of an O_DIRECT file.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::kernel::alignment::Alignment;
use crate::sys::Errno;
use crate::sys::cast::to_usize;
use crate::sys::uninit_slice::UninitSlice;

/// The maximum size of a buffer in bytes. It may be one block, if blocks are larger.
const MAX_SIZE: usize = 1 << 20;

/// Aligned memory that covers a read block by block, and moves over the file.
#[derive(Debug)]
pub(crate) struct BounceBuffer {
    memory: NonNull<u8>,
    layout: Layout,
    block: u64,
}

// SAFETY: the buffer owns the memory. Only operations that own the buffer point to it.
unsafe impl Send for BounceBuffer {}
// SAFETY: a shared reference only allows reading it.
unsafe impl Sync for BounceBuffer {}

impl BounceBuffer {
    /// Makes a buffer for a read of `len` bytes. `None` if no memory can have that alignment.
    pub(crate) fn new(needed: Alignment, len: usize) -> Option<BounceBuffer> {
        let block = needed.read_offset as usize;
        let most = MAX_SIZE.next_multiple_of(block);
        // The requested range may begin and end within a block.
        let room = len.min(most).next_multiple_of(block).saturating_add(block);
        let size = room.min(most);
        let layout = Layout::from_size_align(size, needed.memory.max(8) as usize).ok()?;
        // SAFETY: the size is at least one block, so it is not zero.
        let memory = NonNull::new(unsafe { alloc(layout) });
        let memory = memory.unwrap_or_else(|| handle_alloc_error(layout));
        Some(BounceBuffer {
            memory,
            layout,
            block: block as u64,
        })
    }

    /// The kernel read that covers the range from `at` to `end`, or its first part: memory, length,
    /// and offset in the file.
    pub(crate) fn over(&self, at: u64, end: u64) -> (*mut u8, usize, u64) {
        let from = at - at % self.block;
        let to = end.checked_next_multiple_of(self.block).unwrap_or(end);
        let len = to_usize((to - from).min(self.layout.size() as u64));
        (self.memory.as_ptr(), len, from)
    }

    /// The number of requested bytes that a read of `n` bytes into the buffer over `at` returned,
    /// at most `left`.
    pub(crate) fn wanted(&self, n: usize, at: u64, left: usize) -> usize {
        n.saturating_sub(to_usize(at % self.block)).min(left)
    }

    /// Copies the requested bytes of a read of `n` bytes into the buffer over `at`, as many as fit.
    /// Returns the number of bytes copied.
    ///
    /// # Errors
    /// As [`UninitSlice::copy_from`].
    ///
    /// # Safety
    /// The kernel must have filled the first `n` bytes of the buffer.
    pub(crate) unsafe fn copy_to(
        &self,
        n: usize,
        at: u64,
        into: &mut UninitSlice<'_>,
    ) -> Result<usize, Errno> {
        let got = self.wanted(n, at, into.len());
        if got > 0 {
            let skip = to_usize(at % self.block);
            // SAFETY: `skip + got` is at most `n`. The caller guarantees that these bytes are
            // filled, and they are not written during this borrow.
            let bytes = unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(skip), got) };
            into.copy_from(bytes)?;
        }
        Ok(got)
    }
}

impl Drop for BounceBuffer {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and is freed only here.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file of `size` bytes through a buffer, as an operation does.
    fn through(needed: Alignment, size: u64, offset: u64, len: usize) -> Vec<u8> {
        let byte_at = |at: u64| (at % 251) as u8;
        let buffer = BounceBuffer::new(needed, len).unwrap();
        let mut bytes = vec![0xee; len];
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let (memory, room, from) = buffer.over(at, offset + len as u64);
            assert!(memory.addr().is_multiple_of(needed.memory as usize));
            assert!(from.is_multiple_of(u64::from(needed.read_offset)));
            assert!(room.is_multiple_of(needed.read_offset as usize));
            let n = to_usize(size.saturating_sub(from)).min(room);
            for i in 0..n {
                // SAFETY: within the room that the buffer named.
                unsafe { memory.add(i).write(byte_at(from + i as u64)) };
            }
            let mut rest = UninitSlice::from(&mut bytes[done..]);
            // SAFETY: `n` bytes were written.
            let got = unsafe { buffer.copy_to(n, at, &mut rest) }.unwrap();
            assert_eq!(got, buffer.wanted(n, at, len - done));
            done += got;
            if got == 0 {
                break;
            }
        }
        bytes.truncate(done);
        let there = (offset..size).take(len).map(byte_at);
        assert!(there.eq(bytes.iter().copied()), "{offset} {len}");
        bytes
    }

    #[test]
    fn a_read_returns_what_is_wanted_and_nothing_that_was_not_read() {
        let needed = Alignment {
            memory: 512,
            read_offset: 512,
            ..Alignment::SAFE
        };
        let size = 2000;
        for offset in [0, 1, 511, 512, 513, 1999, 2000, 3000] {
            for len in [1, 511, 512, 513, 1100, 4000] {
                through(needed, size, offset, len);
            }
        }
    }

    #[test]
    fn a_larger_read_is_made_in_several() {
        let needed = Alignment {
            memory: 4096,
            read_offset: 4096,
            ..Alignment::SAFE
        };
        // Every byte is looked at, which takes Miri its time.
        let most = if cfg!(miri) { 1 << 10 } else { MAX_SIZE };
        let size = 2 * most + 5000;
        let read = through(needed, size as u64, 5, size);
        assert_eq!(read.len(), size - 5);
    }
}
