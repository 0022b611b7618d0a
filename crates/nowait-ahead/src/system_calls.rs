//! The right of the library to make system calls. It makes none in a process that has a filter of
//! system calls, or may have one, and none in a child that uses the memory of its parent.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nowait_ahead_channel::has_filter;
use rustix::thread::gettid;

use crate::thread::thread;

/// True if this process has no filter of system calls.
static ALLOWED: AtomicBool = AtomicBool::new(false);
/// Not 0 if the program has started a child that uses its memory: vfork(2), or clone(2) with
/// CLONE_VM.
pub static VFORKS: AtomicU32 = AtomicU32::new(0);

/// Asks for the filters of this process.
pub fn look() {
    ALLOWED.store(!has_filter(), Ordering::Relaxed);
}

/// Returns true if system calls may be made.
pub fn are_allowed() -> bool {
    ALLOWED.load(Ordering::Relaxed) && !is_in_parents_memory()
}

/// Returns true in a child of vfork(2). What it changes in memory, it changes for its parent. It has the
/// memory of the parent's thread, and so the C library's copy of that thread's ID.
fn is_in_parents_memory() -> bool {
    VFORKS.load(Ordering::Relaxed) != 0 && has_another_id()
}

#[cold]
#[inline(never)]
fn has_another_id() -> bool {
    let thread = thread();
    thread != 0 && gettid().as_raw_nonzero().get().cast_unsigned() != thread
}

/// The program has started a child that may use its memory.
pub fn shares_memory() {
    VFORKS.store(1, Ordering::Relaxed);
}

/// Makes no more system calls in this process, which is about to install a filter.
pub fn stop() {
    ALLOWED.store(false, Ordering::Relaxed);
}

/// Makes system calls without changing the errno of the program.
#[inline(always)]
pub fn with_errno(calls: impl FnOnce()) {
    let errno = errno();
    calls();
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() = errno };
}

/// The errno of this thread.
pub fn errno() -> i32 {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() }
}
