//! The heap of the library: free lists of chunks, in memory from mmap(2).
//!
//! ```text
//!   16, 32, … 64 KiB   one free list for each size; new chunks are cut from a region of 256 KiB
//!   more               not here: a mapping for each allocation (`allocator.rs`)
//! ```
//! Chunks have no header. The size alone tells the free list of a chunk.
//!
//! The lock is taken only by the library's threads and by callers that have all signals blocked.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::futex::{self, NEVER};
use crate::sys::memory::{self, PAGE_SIZE};

const MIN_CHUNK_SIZE: usize = 16;
const MAX_CHUNK_SIZE: usize = 64 << 10;
const SIZE_CLASSES: usize = (MAX_CHUNK_SIZE / MIN_CHUNK_SIZE).ilog2() as usize + 1;
const REGION_SIZE: usize = 256 << 10;

/// A lock and the free lists. All zeroes is an unlocked heap without chunks.
#[repr(C)]
pub struct Heap {
    lock: AtomicU32,
    lists: UnsafeCell<FreeLists>,
}

// SAFETY: `lists` is accessed only by the thread that has the lock.
unsafe impl Sync for Heap {}

#[repr(C)]
struct FreeLists {
    heads: [*mut FreeChunk; SIZE_CLASSES],
    /// The part of the region that is not cut into chunks yet.
    region: *mut u8,
    region_len: usize,
}

struct FreeChunk {
    next: *mut FreeChunk,
}

/// The size of a chunk: 16 bytes times a power of two.
#[derive(Clone, Copy, Debug)]
pub struct SizeClass(usize);

impl SizeClass {
    /// The size class of an allocation; `None` if it is larger than a chunk can be.
    pub fn of(layout: Layout) -> Option<SizeClass> {
        let size = layout.size().max(layout.align()).max(MIN_CHUNK_SIZE);
        let class = (size.next_power_of_two() / MIN_CHUNK_SIZE).ilog2() as usize;
        (size <= MAX_CHUNK_SIZE).then_some(SizeClass(class))
    }

    fn size(self) -> usize {
        MIN_CHUNK_SIZE << self.0
    }
}

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;
const LOCKED_WITH_WAITERS: u32 = 2;

impl Heap {
    /// Allocates a chunk that is aligned to its size, or to a page if it is larger. Null if there
    /// is no memory.
    pub fn allocate(&self, class: SizeClass) -> *mut u8 {
        self.with_lock(|lists| lists.allocate(class))
    }

    /// Frees a chunk.
    ///
    /// # Safety
    /// The chunk must come from `allocate` with this size class, and no code may use it.
    pub unsafe fn free(&self, class: SizeClass, chunk: *mut u8) {
        // SAFETY: the caller's promise.
        self.with_lock(|lists| unsafe { lists.free(class, chunk.cast()) });
    }

    /// Runs `work` with the lock. A thread that waits for the lock sleeps, since the thread that
    /// has it may have a lower priority.
    fn with_lock<T>(&self, work: impl FnOnce(&mut FreeLists) -> T) -> T {
        let locked =
            self.lock
                .compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed);
        if locked.is_err() {
            while self.lock.swap(LOCKED_WITH_WAITERS, Ordering::Acquire) != UNLOCKED {
                futex::wait(&self.lock, LOCKED_WITH_WAITERS, &NEVER);
            }
        }
        // SAFETY: this thread has the lock, and `work` does not call this function.
        let result = work(unsafe { &mut *self.lists.get() });
        if self.lock.swap(UNLOCKED, Ordering::Release) == LOCKED_WITH_WAITERS {
            futex::wake_all(&self.lock);
        }
        result
    }
}

impl FreeLists {
    fn allocate(&mut self, class: SizeClass) -> *mut u8 {
        let chunk = self.heads[class.0];
        if chunk.is_null() {
            return self.cut(class.size());
        }
        // SAFETY: the chunk is free, so no other code uses it, and `free` has written to it.
        self.heads[class.0] = unsafe { (*chunk).next };
        chunk.cast()
    }

    /// Cuts a new chunk from the region.
    fn cut(&mut self, size: usize) -> *mut u8 {
        let skip = self.region.align_offset(size.min(PAGE_SIZE));
        if self.region_len < skip + size {
            let Ok(region) = memory::map(REGION_SIZE) else {
                return null_mut();
            };
            (self.region, self.region_len) = (region, REGION_SIZE);
            return self.cut(size);
        }
        // SAFETY: within the region, as the check above says.
        let (chunk, rest) = unsafe { (self.region.add(skip), self.region.add(skip + size)) };
        (self.region, self.region_len) = (rest, self.region_len - skip - size);
        chunk
    }

    /// # Safety
    /// As for [`Heap::free`].
    unsafe fn free(&mut self, class: SizeClass, chunk: *mut FreeChunk) {
        // SAFETY: no code uses the chunk; it has room and alignment for a `FreeChunk`.
        unsafe { (*chunk).next = self.heads[class.0] };
        self.heads[class.0] = chunk;
    }
}
