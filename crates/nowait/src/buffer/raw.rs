//! Memory that a program in another language lends to operations, as a buffer.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::io_buf::{IoBuf, IoBufMut};
use crate::sys::uninit_slice::UninitSlice;

/// Memory that the program lends to operations: an address and a length. It is for interfaces of
/// other languages, whose callers keep their memory. Rust programs use a buffer that owns its
/// memory.
///
/// ```
/// use nowait::buffer::RawMemory;
/// let mut memory = vec![0u8; 9];
/// let file = nowait::File::blocking_open("Cargo.toml")?;
/// // SAFETY: the read is complete before the memory is used.
/// let buffer = unsafe { RawMemory::new(memory.as_mut_ptr(), memory.len()) };
/// pollster::block_on(file.read_exact_at(buffer, 0)).result?;
/// assert_eq!(memory, b"[package]");
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RawMemory {
    start: *mut u8,
    len: usize,
}

// SAFETY: Assumption: the obligation of `RawMemory::new`. Only the kernel reads or writes the
// memory.
unsafe impl Send for RawMemory {}

impl RawMemory {
    /// Lends `len` bytes from `start` on. The kernel alone accesses them: if they are not mapped,
    /// an operation fails with EFAULT.
    ///
    /// # Safety
    /// Until every operation with this value or a copy of it is complete, the memory is valid or
    /// not mapped at all, and the program neither writes it nor, if the operation reads into it,
    /// reads it.
    pub unsafe fn new(start: *mut u8, len: usize) -> RawMemory {
        RawMemory { start, len }
    }

    /// The address of the first byte. It is null if it was made so.
    pub fn start(self) -> *mut u8 {
        self.start
    }

    /// The number of bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns true if there is no byte.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns true if the start is null and the length is not 0.
    pub fn is_null(self) -> bool {
        self.start.is_null() && self.len > 0
    }

    /// The memory without its first `n` bytes.
    #[must_use]
    pub fn skip(self, n: usize) -> RawMemory {
        let n = n.min(self.len);
        RawMemory {
            start: self.start.wrapping_add(n),
            len: self.len - n,
        }
    }

    /// The start, for a slice: a slice must not begin at null, also not one of no bytes.
    pub(super) fn slice_start(self) -> NonNull<u8> {
        NonNull::new(self.start).unwrap_or(NonNull::dangling())
    }
}

impl IoBufMut for RawMemory {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        // SAFETY: Assumption: the obligation of `RawMemory::new`. The bytes may be uninitialised,
        // and only the kernel accesses them through this.
        UninitSlice::Uninit(unsafe {
            std::slice::from_raw_parts_mut(self.slice_start().cast().as_ptr(), self.len)
        })
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

impl IoBuf for RawMemory {
    fn bytes(&self) -> &[u8] {
        // SAFETY: as above; operations use the address and the length only.
        unsafe { std::slice::from_raw_parts(self.slice_start().as_ptr(), self.len) }
    }
}
