//! The state of the library in this process: one page, which the kernel zeroes in a forked child.
//!
//! A child starts with nothing of its parent's: no queue, no requests, an empty heap, and counters
//! at zero. This holds for every way to make a child (fork(2), clone(2) by number, vfork(2) and
//! execve(2)). It takes no pthread_atfork(3) handler, no getpid(2) in each call, and no lock that
//! another thread of the parent may have held.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;

use crate::counters::Counters;
use crate::driver_thread;
use crate::heap::Heap;
use crate::queue::SubmissionQueue;
use crate::sys::memory::PAGE_SIZE;
use crate::sys::{clock, errno, memory};

/// The content of the page. All zeroes is a process that has not used the library.
#[repr(C)]
pub struct ProcessState {
    /// Tells the requests of this process from those of its ancestors; 0 before the first request.
    generation: AtomicU64,
    /// The process that the page belongs to. A child of vfork(2) has its parent's page until
    /// execve(2).
    pid: AtomicU32,
    queue: AtomicPtr<SubmissionQueue>,
    pub counters: Counters,
    pub heap: Heap,
}

const _: () = assert!(size_of::<ProcessState>() <= PAGE_SIZE);

static PROCESS_STATE: AtomicPtr<ProcessState> = AtomicPtr::new(std::ptr::null_mut());

impl ProcessState {
    /// The state, if this process or an ancestor of it has used the library. Async-signal-safe.
    pub fn get() -> Option<&'static ProcessState> {
        // SAFETY: the pointer is null or that of a page which is never unmapped. All zeroes (a page
        // in a forked child) is a valid `ProcessState`.
        unsafe { PROCESS_STATE.load(Ordering::Acquire).as_ref() }
    }

    /// The state, initialised on first use.
    pub fn get_or_init() -> Result<&'static ProcessState, Errno> {
        if let Some(process) = ProcessState::get() {
            process.init_generation();
            return Ok(process);
        }
        let page = memory::map_page_wiped_on_fork()
            .map_err(errno::resource_shortage_to_again)?
            .cast::<ProcessState>();
        let null = std::ptr::null_mut();
        if PROCESS_STATE
            .compare_exchange(null, page, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // Another thread was faster.
            // SAFETY: mapped above, and no other code has the address.
            let _ = unsafe { memory::unmap(page.cast(), PAGE_SIZE) };
        }
        let process = ProcessState::get().ok_or(Errno::NOMEM)?;
        process.init_generation();
        Ok(process)
    }

    fn init_generation(&self) {
        if self.generation() == 0 {
            let now = clock::monotonic();
            let pid = std::process::id();
            let seed = (now.tv_sec as u64) << 32 ^ (now.tv_nsec as u64) << 2 ^ u64::from(pid) << 40;
            self.pid.store(pid, Ordering::Relaxed);
            // All bits differ between processes, not only those of the time and the pid.
            let generation = (seed ^ seed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let _ = self.generation.compare_exchange(
                0,
                generation,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
    }

    /// The generation of the process that the page belongs to; 0 before its first request.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The generation of this process; 0 if it has submitted no request. Async-signal-safe.
    pub fn current_generation() -> u64 {
        ProcessState::get().map_or(0, ProcessState::generation)
    }

    /// False in a child of vfork(2), which has its parent's page.
    pub fn is_of_this_process(&self) -> bool {
        self.pid.load(Ordering::Relaxed) == std::process::id()
    }

    /// The submission queue, if there is one.
    pub fn queue(&self) -> Option<&'static SubmissionQueue> {
        // SAFETY: the pointer is null or comes from `SubmissionQueue::new`, which never frees it.
        unsafe { self.queue.load(Ordering::Acquire).as_ref() }
    }

    /// The submission queue. Starts a driver on first use, and again after the queue was
    /// disconnected.
    pub fn queue_or_start_driver(&self) -> Result<&'static SubmissionQueue, Errno> {
        loop {
            let current = self.queue.load(Ordering::Acquire);
            if let Some(queue) = self.queue().filter(|queue| !queue.is_disconnected()) {
                return Ok(queue);
            }
            let queue = driver_thread::start(self.generation())
                .map_err(errno::resource_shortage_to_again)?;
            let new = std::ptr::from_ref(queue).cast_mut();
            let stored =
                self.queue
                    .compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire);
            if stored.is_err() {
                // Another thread was faster.
                queue.discard();
            }
        }
    }
}
