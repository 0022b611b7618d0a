//! Sleeping on a word of memory: futex(2).

use std::ffi::c_int;
use std::sync::atomic::AtomicU32;

/// A deadline that does not come: the last moment of CLOCK_MONOTONIC.
pub const NEVER: libc::timespec = libc::timespec {
    tv_sec: i64::MAX,
    tv_nsec: 0,
};

/// Sleeps while the word has this value, at most until the deadline: FUTEX_WAIT_BITSET. Returns 0
/// or the error.
///
/// There is always a deadline, because only then does the kernel end the call with EINTR after a
/// handler with SA_RESTART. A thread may be cancelled in this call, so nothing here has a
/// destructor.
pub fn wait(word: &AtomicU32, value: u32, deadline: &libc::timespec) -> c_int {
    // SAFETY: the word and the deadline live through the call, and the kernel only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            value,
            std::ptr::from_ref(deadline),
            std::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        )
    };
    if result == 0 {
        0
    } else {
        // SAFETY: glibc's errno of the calling thread always exists.
        unsafe { *libc::__errno_location() }
    }
}

/// Wakes all threads that sleep on the word: FUTEX_WAKE.
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: the word lives through the call, which does not read it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        );
    }
}
