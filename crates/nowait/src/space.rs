//! Memory that one read fills.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Memory that can be read into: initialised or not.
#[derive(Debug)]
pub enum Space<'a> {
    /// Bytes that are initialised, whose values no longer matter.
    Init(&'a mut [u8]),
    /// Bytes that nobody has written yet.
    Uninit(&'a mut [MaybeUninit<u8>]),
}

impl Space<'_> {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Space::Init(s) => s.len(),
            Space::Uninit(s) => s.len(),
        }
    }

    /// Whether there is no room at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its start, for whoever remembers it.
    pub(crate) fn start(&mut self) -> NonNull<u8> {
        match self {
            Space::Init(s) => NonNull::from(&mut **s).cast(),
            Space::Uninit(s) => NonNull::from(&mut **s).cast(),
        }
    }

    /// Its start, for the kernel.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        match self {
            Space::Init(s) => s.as_mut_ptr(),
            Space::Uninit(s) => s.as_mut_ptr().cast(),
        }
    }
}

impl Space<'_> {
    /// All but its first `n` bytes, borrowed anew.
    pub(crate) fn skip(&mut self, n: usize) -> Space<'_> {
        match self {
            Space::Init(s) => {
                let n = n.min(s.len());
                Space::Init(&mut s[n..])
            }
            Space::Uninit(s) => {
                let n = n.min(s.len());
                Space::Uninit(&mut s[n..])
            }
        }
    }
}

impl<'a> Space<'a> {
    /// At most the first `n` bytes of it.
    #[must_use]
    pub fn first(self, n: usize) -> Space<'a> {
        match self {
            Space::Init(s) => {
                let n = n.min(s.len());
                Space::Init(&mut s[..n])
            }
            Space::Uninit(s) => {
                let n = n.min(s.len());
                Space::Uninit(&mut s[..n])
            }
        }
    }
}

impl<'a> From<&'a mut [u8]> for Space<'a> {
    fn from(s: &'a mut [u8]) -> Space<'a> {
        Space::Init(s)
    }
}

impl<'a> From<&'a mut [MaybeUninit<u8>]> for Space<'a> {
    fn from(s: &'a mut [MaybeUninit<u8>]) -> Space<'a> {
        Space::Uninit(s)
    }
}

impl<'a, const N: usize> From<&'a mut [u8; N]> for Space<'a> {
    fn from(s: &'a mut [u8; N]) -> Space<'a> {
        Space::Init(s)
    }
}

impl<'a> From<&'a mut Vec<u8>> for Space<'a> {
    /// The vector's bytes as they are: `vec![0; n]` is `n` bytes to fill.
    fn from(v: &'a mut Vec<u8>) -> Space<'a> {
        Space::Init(v)
    }
}
