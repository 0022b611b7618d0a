//! Cancellation of threads: pthread_cancel(3).

use std::ffi::c_int;
use std::sync::atomic::AtomicU32;

use crate::sys::futex;

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
}
const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

/// Runs `work` with cancellation disabled on the calling thread.
pub fn with_cancellation_disabled<T>(work: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: only a flag of the calling thread changes. Enabling cancellation again does not
    // cancel the thread by itself: deferred cancellation waits for a cancellation point.
    unsafe {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before);
        let result = work();
        pthread_setcancelstate(before, std::ptr::null_mut());
        result
    }
}

/// A cancellation point: the thread unwinds from here if it was cancelled.
///
/// # Safety
/// No frame between this call and the program's may have a destructor.
pub unsafe fn test_cancel() {
    // SAFETY: the caller's promise.
    unsafe { pthread_testcancel() };
}

/// [`futex::wait`] as a cancellation point: a cancelled thread unwinds from within.
pub extern "C-unwind" fn futex_wait(
    word: &AtomicU32,
    value: u32,
    deadline: &libc::timespec,
) -> c_int {
    let mut before = 0;
    // SAFETY: acts on the calling thread only. While the thread may be cancelled at any instruction
    // it is in the system call or next to it, and holds nothing.
    unsafe {
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &raw mut before);
        let result = futex::wait(word, value, deadline);
        pthread_setcanceltype(before, std::ptr::null_mut());
        result
    }
}
