//! The buffer of a request, in the program's memory.

use nowait::buffer::{IoBuf, IoBufMut, Space};

/// A buffer that the program does not touch until the request is done.
///
/// It is used as the buffer of an operation of the engine, which then owns the right to use the memory, but
/// not the memory.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub start: *mut u8,
    pub len: usize,
}

// SAFETY: Assumption: as POSIX demands, the program keeps the buffer valid, and does not use it until the
// request is done. Only the kernel reads or writes it, and fails with EFAULT if it is not mapped.
unsafe impl Send for Buffer {}

impl Buffer {
    /// The buffer as one value. A closure that uses the fields would capture them one by one, and a raw
    /// pointer is not `Send`.
    pub fn whole(self) -> Buffer {
        self
    }

    /// True if the start is null and the length is not 0.
    pub fn is_null(&self) -> bool {
        self.start.is_null() && self.len > 0
    }

    /// The buffer without its first `n` bytes.
    #[must_use]
    pub fn skip(self, n: usize) -> Buffer {
        let n = n.min(self.len);
        Buffer {
            start: self.start.wrapping_add(n),
            len: self.len - n,
        }
    }

    /// The start, for a slice: a slice must not begin at null, also not one of no bytes.
    fn slice_start(&self) -> *mut u8 {
        if self.start.is_null() {
            std::ptr::dangling_mut()
        } else {
            self.start
        }
    }
}

impl IoBufMut for Buffer {
    fn space(&mut self) -> Space<'_> {
        // SAFETY: Assumption: as for `Send`; null buffers were refused at submission. The bytes may be
        // uninitialised, and only the kernel accesses them through this.
        Space::Uninit(unsafe {
            std::slice::from_raw_parts_mut(self.slice_start().cast(), self.len)
        })
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

impl IoBuf for Buffer {
    fn bytes(&self) -> &[u8] {
        // SAFETY: as above; operations use the address and the length only.
        unsafe { std::slice::from_raw_parts(self.slice_start(), self.len) }
    }
}
