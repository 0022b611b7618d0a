//! aio_cancel(3): cancels a request, or all requests on a file.

use std::ffi::c_int;
use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::abi::{AIO_ALLDONE, AIO_NOTCANCELED, Aiocb};
use crate::control_block::{ControlBlock, Status};
use crate::process_state::ProcessState;
use crate::submit::file_flags::file_flags;
use crate::sys::errno::fail;
use crate::sys::pthread_cancel::with_cancellation_disabled;

/// Cancels a request, or all requests on a file: aio_cancel(3).
///
/// # Safety
/// The block must be null or one of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_cancel(fildes: c_int, block: *mut Aiocb) -> c_int {
    // SAFETY: the caller's promise.
    match with_cancellation_disabled(|| unsafe { cancel(fildes, ControlBlock::new(block)) }) {
        Ok(answer) => answer,
        Err(errno) => fail(errno),
    }
}

/// # Safety
/// As for aio_cancel(3).
unsafe fn cancel(fildes: RawFd, block: Option<ControlBlock>) -> Result<c_int, Errno> {
    file_flags(fildes)?;
    let generation = ProcessState::current_generation();
    let is_in_progress = |block: ControlBlock| block.status(generation) == Status::InProgress;
    if let Some(block) = block {
        // SAFETY: the caller's promise.
        if unsafe { block.fields() }.fildes != fildes {
            return Err(Errno::INVAL);
        }
        match block.status(generation) {
            Status::InProgress => {}
            // A copy of a block is no request.
            Status::CopyInProgress => return Err(Errno::INVAL),
            _ => return Ok(AIO_ALLDONE),
        }
    }
    let Some(queue) = ProcessState::get().and_then(ProcessState::queue) else {
        return Ok(match block {
            Some(block) if is_in_progress(block) => AIO_NOTCANCELED,
            _ => AIO_ALLDONE,
        });
    };
    if queue.is_disconnected() {
        return Ok(AIO_NOTCANCELED);
    }
    match (queue.cancel(fildes, block), block) {
        // Another thread is still submitting the request.
        (AIO_ALLDONE, Some(block)) if is_in_progress(block) => Ok(AIO_NOTCANCELED),
        (answer, _) => Ok(answer),
    }
}
