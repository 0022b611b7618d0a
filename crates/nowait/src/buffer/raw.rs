//! Memory that a program in another language lends to operations, as a buffer.
#![allow(unsafe_code)]

use super::io_buf::{IoBuf, IoBufMut};
use crate::sys::raw_memory::RawMemory;
use crate::sys::uninit_slice::UninitSlice;

impl IoBufMut for RawMemory {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        UninitSlice::Raw(*self)
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

impl IoBuf for RawMemory {
    fn bytes(&self) -> &[u8] {
        // SAFETY: Assumption: the obligation of `RawMemory::new`. Operations use the address and
        // the length only.
        unsafe { std::slice::from_raw_parts(self.slice_start().as_ptr(), self.len()) }
    }
}
