//! A pool of buffers of one size in one mapping, which can be registered with a ring.
//!
//! ```text
//!  take() ─► PoolBuffer ─► operation ─► completion ─► dropped ─┐
//!    ▲          (holds the pool: its memory outlives it)       │
//!    └───────────────────────── free ◄─────────────────────────┘
//! ```
#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::io_buf::{IoBuf, IoBufMut};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::Errno;
use crate::sys::process::{Owner, page_size};
use crate::sys::uninit_slice::UninitSlice;

/// The largest registered buffer that a ring accepts.
const MAX_REGISTERED: usize = 1 << 30;

/// Page-aligned buffers of one size, for O_DIRECT and for registration with a ring
/// ([`Options::buffers`](crate::engine::Options::buffers)). Clones refer to the same pool.
///
/// A buffer returns to its pool when it is dropped: with its completion, or with the operation or
/// the engine that held it. The memory is freed when the pool, its buffers, and the rings that it
/// is registered with are dropped.
///
/// ```
/// use nowait::buffer::BufferPool;
/// let pool = BufferPool::new(2, 4096)?;
/// let (one, two) = (pool.take(), pool.take());
/// assert!(one.is_some_and(|b| b.len() == 4096) && two.is_some());
/// assert_eq!(pool.free(), 1, "the first was dropped, the second is in use");
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone)]
pub struct BufferPool(Arc<Inner>);

struct Inner {
    memory: Memory,
    size: usize,
    stride: usize,
    count: usize,
    free: ArrayQueue<u32>,
    process: Owner,
}

impl Inner {
    /// The free buffers. `None` in a forked child, where a thread of the parent may have been using
    /// the queue at the fork. A wait for it would never end.
    fn free(&self) -> Option<&ArrayQueue<u32>> {
        self.process.is_here().then_some(&self.free)
    }
}

/// A mapping.
struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: only this value owns the mapping. Access to its memory is controlled by the buffers, each
// of which is owned by one `PoolBuffer`.
unsafe impl Send for Memory {}
// SAFETY: as above. A shared reference gives only the address.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `len` zeroed bytes.
    fn map(len: usize) -> std::result::Result<Memory, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no other memory.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Memory { start, len })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping. Buffers and rings hold the pool, so the memory is no
        // longer used.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl BufferPool {
    /// Makes a pool of `count` buffers of `size` bytes each (at most 1 GiB).
    ///
    /// # Errors
    /// `InvalidInput` if `count` or `size` is 0 or too large; ENOMEM if the memory cannot be
    /// mapped.
    pub fn new(count: usize, size: usize) -> Result<BufferPool> {
        let stride = size.checked_next_multiple_of(page_size());
        let len = stride.and_then(|stride| stride.checked_mul(count));
        let (Some(stride), Some(len), Ok(last)) = (stride, len, u32::try_from(count)) else {
            return Err(Error::new("buffer pool", ErrorKind::InvalidInput));
        };
        if len == 0 || stride > MAX_REGISTERED {
            return Err(Error::new("buffer pool", ErrorKind::InvalidInput));
        }
        let memory = Memory::map(len).map_err(|errno| Error::os("buffer pool", errno))?;
        let free = ArrayQueue::new(count);
        for index in 0..last {
            let _ = free.push(index);
        }
        Ok(BufferPool(Arc::new(Inner {
            memory,
            size,
            stride,
            count,
            free,
            process: Owner::current(),
        })))
    }

    /// Takes a free buffer. `None` if there is none, and in a forked child, which needs a pool of
    /// its own. The bytes are zero at first, and otherwise those of the last use.
    pub fn take(&self) -> Option<PoolBuffer> {
        let index = self.0.free()?.pop()?;
        Some(PoolBuffer {
            pool: self.clone(),
            index,
        })
    }

    /// The number of buffers that [`take`](BufferPool::take) can return now.
    pub fn free(&self) -> usize {
        self.0.free().map_or(0, ArrayQueue::len)
    }

    /// The number of buffers.
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// The size of each buffer, in bytes.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// The pool's memory for registration with a ring: pieces of at most 1 GiB, none of which ends
    /// within a buffer.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Range<usize>> {
        let Inner {
            memory,
            stride,
            count,
            ..
        } = &*self.0;
        let start = memory.start.as_ptr() as usize;
        let end = start + stride * count;
        let piece = MAX_REGISTERED / stride * stride;
        (start..end)
            .step_by(piece)
            .map(move |from| from..end.min(from + piece))
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool")
            .field("count", &self.count())
            .field("size", &self.size())
            .field("free", &self.free())
            .finish()
    }
}

/// One buffer of a [`BufferPool`], used as a slice. For shorter reads and writes use
/// [`limit`](crate::IoBufExt::limit). Dropping it returns it to the pool.
pub struct PoolBuffer {
    pool: BufferPool,
    index: u32,
}

impl PoolBuffer {
    fn start(&self) -> *mut u8 {
        let Inner { memory, stride, .. } = &*self.pool.0;
        // SAFETY: the index is below the pool's count, so the address is within the mapping.
        unsafe { memory.start.add(stride * self.index as usize).as_ptr() }
    }
}

impl Deref for PoolBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is mapped and was zeroed. It belongs to this buffer alone since its
        // index was taken.
        unsafe { std::slice::from_raw_parts(self.start(), self.pool.0.size) }
    }
}

impl DerefMut for PoolBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the same as for `deref`, and the buffer is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.pool.0.size) }
    }
}

impl IoBuf for PoolBuffer {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl IoBufMut for PoolBuffer {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        UninitSlice::Init(self)
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

impl fmt::Debug for PoolBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolBuffer({} bytes)", self.len())
    }
}

impl Drop for PoolBuffer {
    fn drop(&mut self) {
        if let Some(free) = self.pool.0.free() {
            // The queue has room for all indices.
            let _ = free.push(self.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_distinct() {
        let pool = BufferPool::new(3, 5000).unwrap();
        let mut all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(all.len(), 3);
        for (i, buffer) in all.iter_mut().enumerate() {
            assert!(buffer.as_ptr().addr().is_multiple_of(page_size()));
            assert_eq!(buffer.len(), 5000);
            assert!(buffer.iter().all(|b| *b == 0));
            buffer.fill(i as u8 + 1);
        }
        for (i, buffer) in all.iter().enumerate() {
            assert!(buffer.iter().all(|b| *b == i as u8 + 1));
        }
    }

    #[test]
    fn no_piece_is_too_large_or_cuts_a_buffer() {
        // The memory is not touched.
        let size = (300 << 20) + 1;
        let pool = BufferPool::new(4, size).unwrap();
        let pieces: Vec<_> = pool.pieces().collect();
        assert_eq!(pieces.len(), 2);
        let whole: usize = pieces.iter().map(ExactSizeIterator::len).sum();
        assert_eq!(whole, 4 * size.next_multiple_of(page_size()));
        assert!(pieces.iter().all(|p| p.len() <= MAX_REGISTERED));
        let all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        for buffer in all {
            let from = buffer.as_ptr().addr();
            let within = |p: &Range<usize>| p.start <= from && from + size <= p.end;
            assert!(pieces.iter().any(within));
        }
    }

    #[test]
    fn what_can_not_be_a_pool_is_refused() {
        for (count, size) in [(0, 1), (1, 0), (1, (1 << 30) + 1), (usize::MAX, 4096)] {
            let refused = BufferPool::new(count, size).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{count} of {size}");
        }
    }
}
