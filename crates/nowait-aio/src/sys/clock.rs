//! The time by CLOCK_MONOTONIC.

use std::mem::MaybeUninit;

/// clock_gettime(2) of the C library. rustix would call the vDSO itself, which valgrind does not
/// map.
pub fn monotonic() -> libc::timespec {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the call fills the time, and all zeroes is a valid time.
    unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, now.as_mut_ptr());
        now.assume_init()
    }
}
