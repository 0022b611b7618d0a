//! What belongs to this process and to no forked child of it: one page of memory that the kernel
//! wipes in a child (madvise(2) MADV_WIPEONFORK, Linux 4.14).
//!
//! So a child finds nothing of its parent's: no desk, no requests, counters at zero, whichever way
//! it was made (fork, vfork and exec, clone by number), without a call to ask for the pid and without
//! a lock that another thread of the parent may have held.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;

use crate::desk::Desk;
use crate::heap::Heap;
use crate::stats::Counters;
use crate::sys::memory::PAGE_SIZE;
use crate::sys::{clock, errno, memory};

/// What the page holds. All zeroes is a process that has done nothing yet.
#[repr(C)]
pub struct Home {
    /// Tells this process's requests from those of another one in a line of forks; 0 before the
    /// first one.
    generation: AtomicU64,
    /// Which process it is: a child of vfork(2) has its parent's page until it calls execve(2).
    pid: AtomicU32,
    /// What takes requests that are not done at once.
    desk: AtomicPtr<Desk>,
    pub counters: Counters,
    pub heap: Heap,
}

const _: () = assert!(size_of::<Home>() <= PAGE_SIZE);

static HOME: AtomicPtr<Home> = AtomicPtr::new(std::ptr::null_mut());

impl Home {
    /// The page, if this process or an ancestor of it has made one. Async-signal-safe.
    pub fn known() -> Option<&'static Home> {
        // SAFETY: what was ever stored is a page that is never unmapped, and all zeroes (a wiped
        // page) is a valid `Home`.
        unsafe { HOME.load(Ordering::Acquire).as_ref() }
    }

    /// The page, made on first use.
    pub fn get() -> Result<&'static Home, Errno> {
        if let Some(home) = Home::known() {
            home.settle();
            return Ok(home);
        }
        let page = memory::map_page_wiped_on_fork()
            .map_err(errno::resource_shortage_to_again)?
            .cast::<Home>();
        let null = std::ptr::null_mut();
        if HOME
            .compare_exchange(null, page, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // Another thread was faster.
            // SAFETY: mapped above, and seen by nobody.
            let _ = unsafe { memory::unmap(page.cast(), PAGE_SIZE) };
        }
        let home = Home::known().ok_or(Errno::NOMEM)?;
        home.settle();
        Ok(home)
    }

    /// Gives the process its generation, once.
    fn settle(&self) {
        if self.generation() == 0 {
            let now = clock::monotonic();
            let pid = std::process::id();
            let seed = (now.tv_sec as u64) << 32 ^ (now.tv_nsec as u64) << 2 ^ u64::from(pid) << 40;
            self.pid.store(pid, Ordering::Relaxed);
            // Spread over all bits, so that no block's address makes up for a difference.
            let generation = (seed ^ seed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let _ = self.generation.compare_exchange(
                0,
                generation,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
    }

    /// This process's generation; 0 if it has submitted nothing. Async-signal-safe.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether the calling process is the one that has submitted something here.
    pub fn is_of_this_process(&self) -> bool {
        self.pid.load(Ordering::Relaxed) == std::process::id()
    }

    /// The desk, if there is one.
    pub fn known_desk(&self) -> Option<&'static Desk> {
        // SAFETY: what was ever stored lives as long as the process.
        unsafe { self.desk.load(Ordering::Acquire).as_ref() }
    }

    /// The desk, opened on first use, and anew after it was lost.
    pub fn desk(&self) -> Result<&'static Desk, Errno> {
        loop {
            let known = self.desk.load(Ordering::Acquire);
            if let Some(desk) = self.known_desk().filter(|desk| !desk.is_lost()) {
                return Ok(desk);
            }
            let made = Desk::open().map_err(errno::resource_shortage_to_again)?;
            let new = std::ptr::from_ref(made).cast_mut();
            let stored =
                self.desk
                    .compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire);
            if stored.is_err() {
                // Another thread was faster.
                made.abandon();
            }
        }
    }
}
