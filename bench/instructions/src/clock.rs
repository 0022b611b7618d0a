//! `clock_gettime`, which the program defines itself in place of the C library's.
//!
//! valgrind has no vDSO, so each read of the clock would be a system call there. The time would also
//! depend on the load of the machine, and the library's decisions depend on the time. This clock
//! advances by a microsecond at each read. It is a century ahead of the kernel's, so that a wait with a
//! time limit never reaches it, and no file has been changed just now.
//!
//! The driver has the kernel's clock, by which its slow disk works.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

static MICROSECONDS: AtomicI64 = AtomicI64::new(5_000_000_000 * 1_000_000);

static IS_COUNTED: AtomicBool = AtomicBool::new(false);

/// From now on the clock advances by reads.
pub fn advance_by_reads() {
    IS_COUNTED.store(true, Relaxed);
}

/// clock_gettime(2).
///
/// # Safety
/// `time` is valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(
    clock: libc::clockid_t,
    time: *mut libc::timespec,
) -> libc::c_int {
    if !IS_COUNTED.load(Relaxed) {
        // SAFETY: the arguments of the call, as they came.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as libc::c_int };
    }
    let now = MICROSECONDS.fetch_add(1, Relaxed);
    let now = libc::timespec {
        tv_sec: now / 1_000_000,
        tv_nsec: now % 1_000_000 * 1_000,
    };
    // SAFETY: the caller's promise.
    unsafe { time.write(now) };
    0
}
