//! The right of the library to make system calls. It makes none in a process that has a filter of
//! system calls, or may have one.

use std::sync::atomic::{AtomicBool, Ordering};

use nowait_ahead_channel::has_filter;

/// True if this process has no filter of system calls.
static ALLOWED: AtomicBool = AtomicBool::new(false);

/// Asks for the filters of this process.
pub fn look() {
    ALLOWED.store(!has_filter(), Ordering::Relaxed);
}

/// Returns true if system calls may be made.
pub fn are_allowed() -> bool {
    ALLOWED.load(Ordering::Relaxed)
}

/// Makes no more system calls in this process, which is about to install a filter.
pub fn stop() {
    ALLOWED.store(false, Ordering::Relaxed);
}

/// Makes system calls without changing the errno of the program.
pub fn with_errno(calls: impl FnOnce()) {
    // SAFETY: the address of this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    calls();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
