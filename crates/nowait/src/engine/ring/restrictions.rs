//! Restrictions of a task (Linux 7.0): the operations and flags that its rings may not use.
//!
//! A sandbox restricts a task with `IORING_REGISTER_RESTRICTIONS` or `IORING_REGISTER_BPF_FILTER` of
//! io_uring_register(2) and the descriptor −1. The kernel completes a request that is not allowed with
//! EACCES, which may also be the result of the operation. The probe of operations does not know the
//! restrictions.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::{IoUring, opcode, squeue, types};

use crate::sys::Errno;

/// User data that no request has.
const NONE: u64 = u64::MAX;
/// The result of a request that is not allowed.
const DENIED: i32 = -libc::EACCES;

/// Tries the requests that each ring needs: a read of its eventfd and a cancel request. `event` counts 0
/// before and afterwards.
///
/// # Errors
/// EACCES if one of them is not allowed, or the errno of io_uring_enter(2).
pub(super) fn try_needed(ring: &mut IoUring, event: &OwnedFd) -> io::Result<()> {
    rustix::io::write(event, &1u64.to_ne_bytes())?;
    let mut count = Box::new([0u8; 8]);
    let read = opcode::Read::new(types::Fd(event.as_raw_fd()), count.as_mut_ptr(), 8).build();
    // SAFETY: Assumption: `count` lives until the read has completed, or is leaked.
    let is_read = unsafe { alone(ring, &read) };
    if is_read.is_err() {
        std::mem::forget(count);
    }
    let cancel = opcode::AsyncCancel::new(NONE).build();
    // SAFETY: a cancel request points to no memory.
    match [is_read?, unsafe { alone(ring, &cancel) }?].contains(&DENIED) {
        true => Err(Errno::ACCESS.into()),
        false => Ok(()),
    }
}

/// Returns true if an operation with this opcode is not allowed. It is tried without a file and without
/// memory. No request is in flight before and afterwards.
pub(super) fn is_denied(ring: &mut IoUring, opcode: u8) -> bool {
    // SAFETY: the entry points to no memory.
    let result = unsafe { alone(ring, &without_file(opcode)) };
    matches!(result, Ok(DENIED))
}

/// An entry with this opcode, and with neither a file nor memory.
pub(super) fn without_file(opcode: u8) -> squeue::Entry {
    let mut entry = opcode::Nop::new().build();
    // SAFETY: Assumption: an entry is a `struct io_uring_sqe`, whose first byte is the opcode. The descriptor
    // of a no-op is −1, all other fields are 0.
    unsafe { *std::ptr::from_mut(&mut entry).cast::<u8>() = opcode };
    entry
}

/// Makes one request of a ring that has no other, and returns its result. It needs a single entry of the
/// queue, which may have no more.
///
/// # Errors
/// The errno of io_uring_enter(2). The request may be in flight.
///
/// # Safety
/// Memory that the entry points to must stay valid until the request has completed.
unsafe fn alone(ring: &mut IoUring, entry: &squeue::Entry) -> io::Result<i32> {
    // SAFETY: the caller's obligation.
    while unsafe { ring.submission().push(entry) }.is_err() {
        // The thread of SQPOLL frees an entry after the completion.
        std::thread::yield_now();
    }
    loop {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        if let Some(entry) = ring.completion().next() {
            return Ok(entry.result());
        }
    }
}
