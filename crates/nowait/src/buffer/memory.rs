//! A buffer that an operation owns, and the memory that it returned when it was asked.
//!
//! ```text
//!  new: asks once ─► address and length, remembered ─► the kernel ─► into_buffer: set_filled
//!  └──────────── the calling thread ─────────────┘                   └─ the calling thread ──┘
//! ```
//!
//! The buffer traits are safe to implement. An implementation may return different memory at each
//! call, free what it returned before, panic, or submit operations itself. The buffer is therefore
//! asked once, when the operation is made. No method of it is called, and it is not moved, while
//! the kernel may access its memory. The borrow of that memory lasts until then.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

use super::io_buf::{Buffer, IoBuf, IoBufMut, Source};
use crate::foreign;
use crate::space::Space;

/// A buffer to be filled.
pub(crate) struct ReadMemory {
    /// It comes from a box, but is a raw pointer: moving a `Box` asserts unique access to its
    /// contents, and the kernel has access too.
    buffer: NonNull<dyn IoBufMut>,
    start: NonNull<u8>,
    len: usize,
    /// The number of bytes to pass to `set_filled`.
    filled: Option<usize>,
}

// SAFETY: the buffer is `Send`, and its memory is borrowed from it.
unsafe impl Send for ReadMemory {}
// SAFETY: a shared reference gives the address and the length, and no access to the buffer.
unsafe impl Sync for ReadMemory {}

impl ReadMemory {
    /// Asks the buffer for its memory. A panic of the buffer propagates to the caller.
    #[inline]
    pub(crate) fn new(buffer: Buffer) -> ReadMemory {
        let mut memory = ReadMemory {
            buffer: NonNull::from(Box::leak(buffer)),
            start: NonNull::dangling(),
            len: 0,
            filled: None,
        };
        // SAFETY: the pointer came from a box, and there is no other pointer to the buffer.
        let mut space = unsafe { memory.buffer.as_mut() }.space();
        memory.len = space.len();
        memory.start = space.start();
        memory
    }

    /// The size of the memory in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address and length of the memory.
    pub(crate) fn piece(&self) -> (usize, usize) {
        (self.start.addr().get(), self.len)
    }

    /// The memory after the first `n` bytes.
    #[inline]
    pub(crate) fn skip(&self, n: usize) -> (*mut u8, usize) {
        let n = n.min(self.len);
        // SAFETY: `n` is at most the length.
        (unsafe { self.start.add(n) }.as_ptr(), self.len - n)
    }

    /// The memory, for a read in the calling thread.
    #[inline]
    pub(crate) fn space(&mut self) -> Space<'_> {
        let start = self.start.cast::<MaybeUninit<u8>>().as_ptr();
        // SAFETY: the buffer returned this memory and was not touched since. No operation on it is
        // in flight, because it could not be borrowed mutably then. Reads write only initialised
        // bytes.
        Space::Uninit(unsafe { std::slice::from_raw_parts_mut(start, self.len) })
    }

    /// Records that the first `n` bytes are file data, for `set_filled`.
    ///
    /// # Safety
    /// They were written through the memory that this value returned.
    #[inline]
    pub(crate) unsafe fn fill(&mut self, n: usize) {
        self.filled = Some(n.min(self.len));
    }

    /// Calls `set_filled`, and returns the buffer. A panic of the buffer propagates to the caller.
    #[inline]
    pub(crate) fn into_buffer(self) -> Buffer {
        let memory = ManuallyDrop::new(self);
        // SAFETY: the pointer came from a box, and is not used after this.
        let mut buffer = unsafe { Box::from_raw(memory.buffer.as_ptr()) };
        if let Some(n) = memory.filled {
            // SAFETY: the caller of `fill` guaranteed that these bytes were written, through the
            // memory that `space` returned at its last call.
            unsafe { buffer.set_filled(n) };
        }
        buffer
    }
}

impl Drop for ReadMemory {
    fn drop(&mut self) {
        // This runs on a thread of the engine if nothing waits for the operation any more.
        // SAFETY: the pointer came from a box, and is not used after this.
        foreign::discard(unsafe { Box::from_raw(self.buffer.as_ptr()) });
    }
}

impl fmt::Debug for ReadMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadMemory({} bytes)", self.len)
    }
}

/// Bytes to be written.
pub(crate) struct WriteMemory {
    /// A raw pointer from a box, for the same reason as in [`ReadMemory`].
    source: NonNull<dyn IoBuf>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the same as for `ReadMemory`.
unsafe impl Send for WriteMemory {}
// SAFETY: the same as for `ReadMemory`.
unsafe impl Sync for WriteMemory {}

impl WriteMemory {
    /// Asks the source for its bytes. A panic of the source propagates to the caller.
    #[inline]
    pub(crate) fn new(source: Source) -> WriteMemory {
        let mut memory = WriteMemory {
            source: NonNull::from(Box::leak(source)),
            start: NonNull::dangling(),
            len: 0,
        };
        // SAFETY: the pointer came from a box, and there is no other pointer to the source.
        let bytes = unsafe { memory.source.as_ref() }.bytes();
        memory.len = bytes.len();
        memory.start = NonNull::from(bytes).cast();
        memory
    }

    /// The address and the number of the bytes.
    pub(crate) fn piece(&self) -> (usize, usize) {
        (self.start.addr().get(), self.len)
    }

    /// The bytes after the first `n`.
    #[inline]
    pub(crate) fn skip(&self, n: usize) -> (*const u8, usize) {
        let n = n.min(self.len);
        // SAFETY: `n` is at most the length.
        (unsafe { self.start.add(n) }.as_ptr(), self.len - n)
    }

    /// Returns the source of the bytes.
    #[inline]
    pub(crate) fn into_source(self) -> Source {
        let memory = ManuallyDrop::new(self);
        // SAFETY: the pointer came from a box, and is not used after this.
        unsafe { Box::from_raw(memory.source.as_ptr()) }
    }
}

impl Drop for WriteMemory {
    fn drop(&mut self) {
        // SAFETY: the same as for `ReadMemory`.
        foreign::discard(unsafe { Box::from_raw(self.source.as_ptr()) });
    }
}

impl fmt::Debug for WriteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteMemory({} bytes)", self.len)
    }
}
