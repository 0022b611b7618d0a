//! aio_read(3), aio_write(3), aio_fsync(3): submit one request.

use std::ffi::c_int;

use rustix::io::Errno;

use crate::abi::Aiocb;
use crate::control_block::ControlBlock;
use crate::process_state::ProcessState;
use crate::request::Opcode;
use crate::submit::file_flags::check_sync;
use crate::submit::{begin, submit};
use crate::sys::errno::{fail, to_c};
use crate::sys::pthread_cancel::with_cancellation_disabled;

/// Submits a read: aio_read(3).
///
/// # Safety
/// The block and its buffer must be as aio_read(3) demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_read(block: *mut Aiocb) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { submit_one(block, Opcode::Read) }
}

/// Submits a write: aio_write(3).
///
/// # Safety
/// The block and its buffer must be as aio_write(3) demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_write(block: *mut Aiocb) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { submit_one(block, Opcode::Write) }
}

/// Submits an fsync(2) or fdatasync(2): aio_fsync(3).
///
/// # Safety
/// The block must be as aio_fsync(3) demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_fsync(op: c_int, block: *mut Aiocb) -> c_int {
    let opcode = match op {
        libc::O_SYNC => Opcode::Sync,
        libc::O_DSYNC => Opcode::DataSync,
        _ => return fail(Errno::INVAL),
    };
    // SAFETY: the caller's promise.
    unsafe { submit_one(block, opcode) }
}

/// # Safety
/// As for aio_read(3).
unsafe fn submit_one(block: *mut Aiocb, opcode: Opcode) -> c_int {
    to_c(with_cancellation_disabled(|| {
        let block = ControlBlock::new(block).ok_or(Errno::INVAL)?;
        let process = ProcessState::get_or_init()?;
        // SAFETY: the caller's promise.
        let fields = unsafe { block.fields() };
        let request = begin(process, block, &fields, opcode, None)?;
        check_sync(request.fildes, opcode).inspect_err(|errno| block.complete(Err(*errno)))?;
        submit(process, request)
    }))
}
