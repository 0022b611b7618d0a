//! The global allocator of the library. It does not use the program's malloc(3).
//!
//! aio_suspend(3) may wait in a signal handler. The handler may have interrupted malloc(3), whose
//! lock is then held until the driver completes a request. If the driver used malloc(3) for that,
//! it would wait forever. So the library takes its memory from the kernel.
//!
//! The heap is part of the [`ProcessState`]. So a forked child has an unlocked heap without chunks.
//! A child may free chunks that its parent has allocated.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;

use crate::heap::SizeClass;
use crate::process_state::ProcessState;
use crate::sys::memory::{self, PAGE_SIZE};

struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: memory has one owner from `alloc` to `dealloc`. It has the size and alignment of the
// layout, or is null.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > PAGE_SIZE {
            return null_mut();
        }
        match SizeClass::of(layout) {
            Some(class) => ProcessState::get_or_init()
                .map_or(null_mut(), |process| process.heap.allocate(class)),
            None => memory::map(layout.size()).unwrap_or(null_mut()),
        }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        match SizeClass::of(layout) {
            Some(class) => {
                if let Ok(process) = ProcessState::get_or_init() {
                    // SAFETY: `alloc` has allocated it for this layout, and the caller gives it up.
                    unsafe { process.heap.free(class, start) };
                }
            }
            None => {
                // SAFETY: `alloc` has mapped it for this layout, and the caller gives it up.
                let _ = unsafe { memory::unmap(start, layout.size()) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_have_their_size_and_alignment_and_do_not_overlap() {
        let mut allocations = Vec::new();
        for round in 0..3u8 {
            for size in [1, 16, 17, 100, 4096, 4097, 65_536, 65_537, 1 << 20] {
                for align in [1, 8, 64, 4096] {
                    let layout = Layout::from_size_align(size, align).unwrap();
                    // SAFETY: the size is not zero.
                    let start = unsafe { ALLOCATOR.alloc(layout) };
                    assert!(!start.is_null() && start.addr().is_multiple_of(align));
                    let pattern = round ^ size as u8 ^ align as u8;
                    // SAFETY: the allocation has this size.
                    unsafe { start.write_bytes(pattern, size) };
                    allocations.push((start, layout, pattern));
                }
            }
            // Every other one is freed, for the next round to reuse.
            let mut i = 0;
            allocations.retain(|(start, layout, pattern)| {
                // SAFETY: all bytes were written above.
                let bytes = unsafe { std::slice::from_raw_parts(*start, layout.size()) };
                assert!(bytes.iter().all(|byte| byte == pattern), "{layout:?}");
                i += 1;
                if i % 2 == 0 {
                    // SAFETY: it was allocated above, and is freed once.
                    unsafe { ALLOCATOR.dealloc(*start, *layout) };
                }
                i % 2 == 1
            });
        }
    }
}
