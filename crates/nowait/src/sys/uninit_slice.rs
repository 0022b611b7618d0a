//! Memory that a read fills.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::Errno;
use super::raw_memory::RawMemory;

/// Memory for a read, initialised or not.
#[derive(Debug)]
pub enum UninitSlice<'a> {
    /// Initialised bytes, whose values may be overwritten.
    Init(&'a mut [u8]),
    /// Uninitialised bytes.
    Uninit(&'a mut [MaybeUninit<u8>]),
    /// Memory that only the kernel accesses.
    Raw(RawMemory),
}

impl UninitSlice<'_> {
    /// The length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            UninitSlice::Init(s) => s.len(),
            UninitSlice::Uninit(s) => s.len(),
            UninitSlice::Raw(memory) => memory.len(),
        }
    }

    /// Returns true if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if only the kernel accesses the memory.
    pub(crate) fn is_raw(&self) -> bool {
        matches!(self, UninitSlice::Raw(_))
    }

    /// Copies bytes to the start, as many as fit. All copies of the library into memory for a read
    /// are made here.
    ///
    /// # Errors
    /// For raw memory only: EFAULT if it cannot be written, or the errno of pipe2(2).
    #[inline]
    pub(crate) fn copy_from(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let n = bytes.len().min(self.len());
        match self {
            UninitSlice::Init(s) => s[..n].copy_from_slice(&bytes[..n]),
            UninitSlice::Uninit(s) => {
                for (to, from) in s.iter_mut().zip(bytes) {
                    to.write(*from);
                }
            }
            UninitSlice::Raw(memory) => return memory.copy_from(bytes),
        }
        Ok(())
    }

    /// The start address, to be stored.
    pub(crate) fn start(&mut self) -> NonNull<u8> {
        match self {
            UninitSlice::Init(s) => NonNull::from(&mut **s).cast(),
            UninitSlice::Uninit(s) => NonNull::from(&mut **s).cast(),
            UninitSlice::Raw(memory) => memory.slice_start(),
        }
    }

    /// The start address, for a system call.
    #[inline]
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        match self {
            UninitSlice::Init(s) => s.as_mut_ptr(),
            UninitSlice::Uninit(s) => s.as_mut_ptr().cast(),
            UninitSlice::Raw(memory) => memory.slice_start().as_ptr(),
        }
    }
}

impl UninitSlice<'_> {
    /// All but the first `n` bytes, reborrowed.
    pub(crate) fn skip(&mut self, n: usize) -> UninitSlice<'_> {
        match self {
            UninitSlice::Init(s) => {
                let n = n.min(s.len());
                UninitSlice::Init(&mut s[n..])
            }
            UninitSlice::Uninit(s) => {
                let n = n.min(s.len());
                UninitSlice::Uninit(&mut s[n..])
            }
            UninitSlice::Raw(memory) => UninitSlice::Raw(memory.skip(n)),
        }
    }
}

impl<'a> UninitSlice<'a> {
    /// At most the first `n` bytes.
    #[must_use]
    pub fn first(self, n: usize) -> UninitSlice<'a> {
        match self {
            UninitSlice::Init(s) => {
                let n = n.min(s.len());
                UninitSlice::Init(&mut s[..n])
            }
            UninitSlice::Uninit(s) => {
                let n = n.min(s.len());
                UninitSlice::Uninit(&mut s[..n])
            }
            UninitSlice::Raw(memory) => UninitSlice::Raw(memory.first(n)),
        }
    }
}

impl<'a> From<&'a mut [u8]> for UninitSlice<'a> {
    fn from(s: &'a mut [u8]) -> UninitSlice<'a> {
        UninitSlice::Init(s)
    }
}

impl<'a> From<&'a mut [MaybeUninit<u8>]> for UninitSlice<'a> {
    fn from(s: &'a mut [MaybeUninit<u8>]) -> UninitSlice<'a> {
        UninitSlice::Uninit(s)
    }
}

impl<'a, const N: usize> From<&'a mut [u8; N]> for UninitSlice<'a> {
    fn from(s: &'a mut [u8; N]) -> UninitSlice<'a> {
        UninitSlice::Init(s)
    }
}

impl<'a> From<&'a mut Vec<u8>> for UninitSlice<'a> {
    /// All initialised bytes of the vector: `vec![0; n]` provides `n` bytes.
    fn from(v: &'a mut Vec<u8>) -> UninitSlice<'a> {
        UninitSlice::Init(v)
    }
}
