//! Mappings: resident bytes are those of the file, whatever happens to it.

#[path = "../common"]
mod common {
    pub mod backends;
    pub mod cache;
    pub mod children;
    pub mod drop_here;
    pub mod files;
    pub mod forked;
    pub mod limit;
    pub mod mounts;
    pub mod nobody;
    pub mod rig;
    pub mod sandbox;
    pub mod wait;
}

mod basics;
mod changes;
mod dropped_pages;
mod kinds;
mod pressure;
mod process;
mod races;
mod shutdown;

use std::time::Instant;

use nowait::mapping::{Budget, BudgetOptions, Unavailable};
use nowait::{File, Mapping};

use common::wait::LONG;

/// The size of a window in these tests.
const WINDOW: u64 = 64 << 10;

/// A budget of this number of windows.
fn budget(windows: u64) -> Budget {
    let options = BudgetOptions::new().window(WINDOW as usize);
    options.limit(windows * WINDOW).build().unwrap()
}

/// Returns true if no memory is mapped in this range: mmap(2), `MAP_FIXED_NOREPLACE`.
#[allow(unsafe_code, reason = "mmap(2), munmap(2)")]
fn is_free(start: usize, len: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the call replaces no mapping. Only a mapping that it has made is removed.
    unsafe {
        let at = libc::mmap(start as *mut _, len, libc::PROT_NONE, flags, -1, 0);
        at != libc::MAP_FAILED && libc::munmap(at, len) == 0
    }
}

/// Maps a file that no test has open for writing. A process that was just forked for another test may have
/// descriptors of this one until it calls execve(2).
fn mapped(file: &File, budget: &Budget) -> Mapping {
    let end = Instant::now() + LONG;
    loop {
        let mapping = Mapping::within(file, budget).unwrap();
        if mapping.why() != Some(Unavailable::OpenForWriting) || Instant::now() > end {
            return mapping;
        }
        std::thread::yield_now();
    }
}
