//! A buffer that an operation owns, and the memory it named when it was asked.
//!
//! ```text
//!  new: asks once ─► address and length, remembered ─► the kernel ─► into_buffer: set_filled
//!  └──────────── the caller's thread ────────────┘                   └─ the caller's thread ─┘
//! ```
//!
//! The buffer traits are safe to implement, so an implementation may name other memory each time,
//! free what it named before, panic, or submit operations itself. So it is asked once, when the
//! operation is made, and nothing of it is called or moved while the kernel may touch its memory:
//! the borrow that it returned lasts until then.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

use super::io_buf::{Buffer, IoBuf, IoBufMut, Source};
use crate::foreign;
use crate::space::Space;

/// A buffer to be filled.
pub(crate) struct ReadMemory {
    /// From a box. No `Box` any more: one that is moved claims to be the only way to what it holds,
    /// and the kernel has another.
    buffer: NonNull<dyn IoBufMut>,
    start: NonNull<u8>,
    len: usize,
    /// How many bytes the buffer is to be told of.
    filled: Option<usize>,
}

// SAFETY: the buffer is `Send`, and its memory is borrowed from it.
unsafe impl Send for ReadMemory {}
// SAFETY: a shared reference gives the address and the length, and no access to the buffer.
unsafe impl Sync for ReadMemory {}

impl ReadMemory {
    /// Asks the buffer for its memory. A panic of the buffer's is the caller's.
    #[inline]
    pub(crate) fn new(buffer: Buffer) -> ReadMemory {
        let mut memory = ReadMemory {
            buffer: NonNull::from(Box::leak(buffer)),
            start: NonNull::dangling(),
            len: 0,
            filled: None,
        };
        // SAFETY: it came from a box, and nothing else points to it.
        let mut space = unsafe { memory.buffer.as_mut() }.space();
        memory.len = space.len();
        memory.start = space.start();
        memory
    }

    /// How many bytes there is room for.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The start of its memory, and its length.
    pub(crate) fn piece(&self) -> (usize, usize) {
        (self.start.addr().get(), self.len)
    }

    /// All but its first `n` bytes.
    #[inline]
    pub(crate) fn skip(&self, n: usize) -> (*mut u8, usize) {
        let n = n.min(self.len);
        // SAFETY: at most its end.
        (unsafe { self.start.add(n) }.as_ptr(), self.len - n)
    }

    /// The memory, for a read in the caller.
    #[inline]
    pub(crate) fn space(&mut self) -> Space<'_> {
        let start = self.start.cast::<MaybeUninit<u8>>().as_ptr();
        // SAFETY: the buffer named this memory and has not been touched since; no operation on it
        // is in flight, for then nothing could borrow it mutably. Reads write only initialised
        // bytes.
        Space::Uninit(unsafe { std::slice::from_raw_parts_mut(start, self.len) })
    }

    /// Notes that the first `n` bytes are file data, for the buffer to be told of.
    ///
    /// # Safety
    /// They were written, through the memory that this value gives.
    #[inline]
    pub(crate) unsafe fn fill(&mut self, n: usize) {
        self.filled = Some(n.min(self.len));
    }

    /// The buffer, told of what it was filled with. A panic of the buffer's is the caller's.
    #[inline]
    pub(crate) fn into_buffer(self) -> Buffer {
        let memory = ManuallyDrop::new(self);
        // SAFETY: it came from a box, and is not used after this.
        let mut buffer = unsafe { Box::from_raw(memory.buffer.as_ptr()) };
        if let Some(n) = memory.filled {
            // SAFETY: whoever called `fill` promised that these bytes were written, through the
            // memory that `space` returned when it was last called.
            unsafe { buffer.set_filled(n) };
        }
        buffer
    }
}

impl Drop for ReadMemory {
    fn drop(&mut self) {
        // On a thread of the engine's, if nobody waits for the operation any more.
        // SAFETY: it came from a box, and is not used after this.
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
    /// From a box, as that of [`ReadMemory`].
    source: NonNull<dyn IoBuf>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: as for `ReadMemory`.
unsafe impl Send for WriteMemory {}
// SAFETY: as for `ReadMemory`.
unsafe impl Sync for WriteMemory {}

impl WriteMemory {
    /// Asks for the bytes. A panic is the caller's.
    #[inline]
    pub(crate) fn new(source: Source) -> WriteMemory {
        let mut memory = WriteMemory {
            source: NonNull::from(Box::leak(source)),
            start: NonNull::dangling(),
            len: 0,
        };
        // SAFETY: it came from a box, and nothing else points to it.
        let bytes = unsafe { memory.source.as_ref() }.bytes();
        memory.len = bytes.len();
        memory.start = NonNull::from(bytes).cast();
        memory
    }

    /// The start of the bytes, and how many they are.
    pub(crate) fn piece(&self) -> (usize, usize) {
        (self.start.addr().get(), self.len)
    }

    /// All but the first `n` of them.
    #[inline]
    pub(crate) fn skip(&self, n: usize) -> (*const u8, usize) {
        let n = n.min(self.len);
        // SAFETY: at most their end.
        (unsafe { self.start.add(n) }.as_ptr(), self.len - n)
    }

    /// What the bytes belong to.
    #[inline]
    pub(crate) fn into_source(self) -> Source {
        let memory = ManuallyDrop::new(self);
        // SAFETY: it came from a box, and is not used after this.
        unsafe { Box::from_raw(memory.source.as_ptr()) }
    }
}

impl Drop for WriteMemory {
    fn drop(&mut self) {
        // SAFETY: as for `ReadMemory`.
        foreign::discard(unsafe { Box::from_raw(self.source.as_ptr()) });
    }
}

impl fmt::Debug for WriteMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteMemory({} bytes)", self.len)
    }
}
