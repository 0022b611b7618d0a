//! aio_suspend(3): waits for a request. A cancellation point, and async-signal-safe.

use std::ffi::c_int;

use rustix::io::Errno;

use crate::abi::Aiocb;
use crate::calls::block_list::{block_list, blocks};
use crate::process_state::ProcessState;
use crate::sys::errno::fail;
use crate::sys::futex::NEVER;
use crate::sys::pthread_cancel;
use crate::wait::{self, Wakeup};

/// Waits until one of the requests is done: aio_suspend(3).
///
/// # Safety
/// `list` must have `count` entries, each null or a block of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn aio_suspend(
    list: *const *const Aiocb,
    count: c_int,
    timeout: *const libc::timespec,
) -> c_int {
    // SAFETY: this frame has no destructor. Nor have the frames of `wait::until`.
    unsafe { pthread_cancel::test_cancel() };
    // SAFETY: the caller's promise.
    let (list, timeout) = unsafe {
        match block_list(list, count) {
            Ok(list) => (list, timeout.as_ref()),
            Err(errno) => return fail(errno),
        }
    };
    let generation = ProcessState::current_generation();
    let mut any = false;
    for block in blocks(list) {
        if !block.status(generation).is_pending() {
            return 0;
        }
        any = true;
    }
    if !any {
        return 0;
    }
    let deadline = match timeout.map(wait::deadline_after) {
        None => NEVER,
        Some(Ok(deadline)) => deadline,
        Some(Err(errno)) => return fail(errno),
    };
    let is_ready = || blocks(list).any(|block| !block.status(generation).is_pending());
    match wait::until(is_ready, &deadline, pthread_cancel::futex_wait) {
        Wakeup::Ready => 0,
        Wakeup::Interrupted => fail(Errno::INTR),
        Wakeup::TimedOut => fail(Errno::AGAIN),
    }
}
