//! The library's own heap: what malloc(3) is to the program, and no part of it.
//!
//! aio_suspend(3) may wait in a signal handler, and the handler may have interrupted the program's
//! malloc(3), whose lock it then holds until the keeper has finished a request. A keeper that needed
//! malloc(3) for that would never come to it. So this library takes its memory from the kernel.
//!
//! ```text
//!   16, 32, … 64 KiB   a list of free pieces each; a new piece is cut from a region of 256 KiB
//!   more               a mapping of its own
//! ```
//! Pieces know nothing of where they came from: only their size says to which list they go. What the
//! lists begin with lies in [`Home`], so a forked child has an unlocked heap with nothing in it, and
//! may give back to it what its parent took.
//!
//! The lock is for keeper, herald and workers, and for callers that have their signals blocked.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::home::Home;
use crate::sys::futex::{self, NEVER};
use crate::sys::memory::{self, PAGE_SIZE};

const SMALLEST: usize = 16;
const LARGEST: usize = 64 << 10;
const LISTS: usize = (LARGEST / SMALLEST).ilog2() as usize + 1;
const REGION: usize = 256 << 10;

/// Where the lists begin. All zeroes is a heap with nothing in it.
#[repr(C)]
pub struct Heap {
    lock: AtomicU32,
    lists: UnsafeCell<Lists>,
}

// SAFETY: `lists` is touched only by who has the lock.
unsafe impl Sync for Heap {}

#[repr(C)]
struct Lists {
    free: [*mut Piece; LISTS],
    /// What is left of the region that pieces are cut from.
    next: *mut u8,
    left: usize,
}

/// A free piece.
struct Piece {
    after: *mut Piece,
}

const FREE: u32 = 0;
const LOCKED: u32 = 1;
const WAITED_FOR: u32 = 2;

impl Heap {
    /// Runs with the lock: futex(2), since the thread that has it may be of a lower priority.
    fn locked<T>(&self, work: impl FnOnce(&mut Lists) -> T) -> T {
        let taken = self
            .lock
            .compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            while self.lock.swap(WAITED_FOR, Ordering::Acquire) != FREE {
                futex::wait(&self.lock, WAITED_FOR, &NEVER);
            }
        }
        // SAFETY: the lock is this thread's, and `work` does not come back here.
        let result = work(unsafe { &mut *self.lists.get() });
        if self.lock.swap(FREE, Ordering::Release) == WAITED_FOR {
            futex::wake_all(&self.lock);
        }
        result
    }
}

impl Lists {
    fn take(&mut self, list: usize) -> *mut u8 {
        let piece = self.free[list];
        if piece.is_null() {
            return self.cut(SMALLEST << list);
        }
        // SAFETY: it is free, so nobody else has it, and `give` has written to it.
        self.free[list] = unsafe { (*piece).after };
        piece.cast()
    }

    /// A new piece, aligned to its size, or to a page.
    fn cut(&mut self, size: usize) -> *mut u8 {
        let skip = self.next.align_offset(size.min(PAGE_SIZE));
        if self.left < skip + size {
            let region = map(REGION);
            if region.is_null() {
                return region;
            }
            (self.next, self.left) = (region, REGION);
            return self.cut(size);
        }
        // SAFETY: within the region, as was just seen.
        let (piece, next) = unsafe { (self.next.add(skip), self.next.add(skip + size)) };
        (self.next, self.left) = (next, self.left - skip - size);
        piece
    }

    fn give(&mut self, list: usize, piece: *mut Piece) {
        // SAFETY: whoever gives it back has no more use for it; it has room and alignment for this.
        unsafe { (*piece).after = self.free[list] };
        self.free[list] = piece;
    }
}

fn map(size: usize) -> *mut u8 {
    memory::map(size).unwrap_or(null_mut())
}

/// Which list has pieces for this; `None` for a mapping of its own.
fn list_of(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(SMALLEST);
    (size <= LARGEST).then(|| (size.next_power_of_two() / SMALLEST).ilog2() as usize)
}

/// What the library allocates with.
struct Own;

#[global_allocator]
static OWN: Own = Own;

// SAFETY: a piece is of one owner from `take` to `give`, a mapping from mmap(2) to munmap(2); both are
// as large and as aligned as asked, or null.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE_SIZE {
            return null_mut();
        }
        match list_of(layout) {
            Some(list) => Home::get().map_or(null_mut(), |home| home.heap.locked(|l| l.take(list))),
            None => map(layout.size()),
        }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        match list_of(layout) {
            Some(list) => {
                if let Ok(home) = Home::get() {
                    home.heap.locked(|l| l.give(list, start.cast()));
                }
            }
            None => {
                // SAFETY: `alloc` has mapped it for this layout.
                let _ = unsafe { memory::unmap(start, layout.size()) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_as_large_and_as_aligned_as_asked_and_nobody_elses() {
        let mut held = Vec::new();
        for round in 0..3u8 {
            for size in [1, 16, 17, 100, 4096, 4097, 65_536, 65_537, 1 << 20] {
                for align in [1, 8, 64, 4096] {
                    let layout = Layout::from_size_align(size, align).unwrap();
                    // SAFETY: the size is not zero, and no more than it is written.
                    let memory = unsafe { OWN.alloc(layout) };
                    assert!(!memory.is_null() && memory.addr().is_multiple_of(align));
                    let mark = round ^ size as u8 ^ align as u8;
                    // SAFETY: as above.
                    unsafe { memory.write_bytes(mark, size) };
                    held.push((memory, layout, mark));
                }
            }
            // Every other one goes back, for the next round to find.
            let mut i = 0;
            held.retain(|(memory, layout, mark)| {
                // SAFETY: it was written whole, and is given back once.
                let bytes = unsafe { std::slice::from_raw_parts(*memory, layout.size()) };
                assert!(bytes.iter().all(|byte| byte == mark), "{layout:?}");
                i += 1;
                if i % 2 == 0 {
                    // SAFETY: as above.
                    unsafe { OWN.dealloc(*memory, *layout) };
                }
                i % 2 == 1
            });
        }
    }
}
