//! aio_error(3), aio_return(3): the status of a request. Async-signal-safe.

use std::ffi::c_int;

use rustix::io::Errno;

use crate::abi::Aiocb;
use crate::control_block::{ControlBlock, Status};
use crate::process_state::ProcessState;
use crate::sys::errno::fail;
use crate::wait;

/// The error of a request, EINPROGRESS or 0: aio_error(3). −1 with EINVAL if there is no such
/// request: no request has −1 as its error.
///
/// # Safety
/// The block must be null, or one that the program may read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_error(block: *const Aiocb) -> c_int {
    match ControlBlock::new(block).map(settled_status) {
        Some(Status::Done(errno)) => errno,
        Some(Status::NotSubmitted) | None => fail(Errno::INVAL),
        Some(_) => libc::EINPROGRESS,
    }
}

/// The return value of a request that is done: aio_return(3). It may be asked for more than once.
///
/// # Safety
/// As for aio_error(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_return(block: *mut Aiocb) -> isize {
    let Some(block) = ControlBlock::new(block) else {
        return fail(Errno::INVAL) as isize;
    };
    match settled_status(block) {
        Status::Done(0) => block.return_value(),
        Status::Done(errno) => fail(Errno::from_raw_os_error(errno)) as isize,
        Status::NotSubmitted => fail(Errno::INVAL) as isize,
        // The request is not done, and POSIX leaves the result undefined. glibc does not set errno,
        // and there are programs that look at errno alone.
        _ => -1,
    }
}

/// The status of a block, after its notification was sent if it is just being sent. A notification
/// that is delayed is not waited for.
fn settled_status(block: ControlBlock) -> Status {
    let generation = ProcessState::current_generation();
    let status = || block.status(generation);
    if status() == Status::Notifying {
        wait::uninterrupted(|| status() != Status::Notifying);
    }
    status()
}
