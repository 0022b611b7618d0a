//! lio_listio(3): submits a list of requests.

use std::ffi::c_int;
use std::sync::Arc;

use rustix::io::Errno;

use crate::abi::{Aiocb, LIO_NOP, LIO_NOWAIT, LIO_READ, LIO_WAIT, LIO_WRITE, Sigevent};
use crate::calls::block_list::{block_list, blocks};
use crate::control_block::{ControlBlock, Status};
use crate::notify::{Notification, RequestList};
use crate::process_state::ProcessState;
use crate::request::Opcode;
use crate::submit::{begin, completion, submit};
use crate::sys::errno::to_c;
use crate::sys::futex::NEVER;
use crate::sys::pthread_cancel::with_cancellation_disabled;
use crate::sys::signal;
use crate::wait::{self, Wakeup};

/// Submits a list of requests: lio_listio(3).
///
/// # Safety
/// `list` must have `count` entries, each null or a block as for aio_read(3). `event` must be null
/// or a `sigevent`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lio_listio(
    mode: c_int,
    list: *const *mut Aiocb,
    count: c_int,
    event: *const Sigevent,
) -> c_int {
    // SAFETY: the caller's promise.
    to_c(with_cancellation_disabled(|| unsafe {
        let list = block_list(list.cast::<*const Aiocb>(), count)?;
        match mode {
            LIO_WAIT => {
                let submitted = submit_list(list, None);
                wait_for_all(list)?;
                submitted?;
                // SAFETY: as above.
                check_all_succeeded(list)
            }
            LIO_NOWAIT => {
                let notification = event
                    .as_ref()
                    .map_or(Ok(Notification::None), Notification::new)?;
                // The `RequestList` is on the heap, which must not be used with signals unblocked.
                signal::with_all_blocked(|| {
                    let request_list =
                        (!notification.is_none()).then(|| RequestList::new(notification));
                    let submitted = submit_list(list, request_list.as_ref());
                    if let Some(request_list) = request_list
                        && request_list.remove()
                    {
                        completion::send(request_list.notification());
                    }
                    submitted
                })
            }
            _ => Err(Errno::INVAL),
        }
    }))
}

/// Submits the requests of a list. An error of one does not stop the others. EAGAIN if there was a
/// lack of resources for one of them, EIO for other errors.
///
/// # Safety
/// As for aio_read(3), for each block.
unsafe fn submit_list(
    list: &[*const Aiocb],
    request_list: Option<&Arc<RequestList>>,
) -> Result<(), Errno> {
    let process = ProcessState::get_or_init()?;
    let mut result = Ok(());
    for block in blocks(list) {
        // SAFETY: the caller's promise.
        match unsafe { submit_entry(process, block, request_list) } {
            Ok(()) => {}
            Err(Errno::AGAIN) => result = Err(Errno::AGAIN),
            Err(_) => result = result.and(Err(Errno::IO)),
        }
    }
    result
}

/// Submits one request of a list.
///
/// # Safety
/// As for aio_read(3).
unsafe fn submit_entry(
    process: &ProcessState,
    block: ControlBlock,
    request_list: Option<&Arc<RequestList>>,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let fields = unsafe { block.fields() };
    let opcode = match fields.opcode {
        LIO_READ => Opcode::Read,
        LIO_WRITE => Opcode::Write,
        LIO_NOP => return Ok(()),
        _ => {
            if !block.status(process.generation()).is_in_flight() {
                block.begin(process.generation());
                block.complete(Err(Errno::INVAL));
            }
            return Err(Errno::INVAL);
        }
    };
    let request = begin(process, block, &fields, opcode, request_list.cloned())?;
    if let Some(request_list) = request_list {
        request_list.add();
    }
    let submitted = submit(process, request);
    if let (Err(_), Some(request_list)) = (&submitted, request_list) {
        // It is not the last one: the list is still being submitted.
        request_list.remove();
    }
    submitted
}

/// Waits for all requests of a list. EINTR after a signal handler; the requests continue.
fn wait_for_all(list: &[*const Aiocb]) -> Result<(), Errno> {
    let generation = ProcessState::current_generation();
    let is_ready = || !blocks(list).any(|block| block.status(generation).is_pending());
    match wait::until(is_ready, &NEVER, wait::sleep) {
        Wakeup::Interrupted => Err(Errno::INTR),
        Wakeup::Ready | Wakeup::TimedOut => Ok(()),
    }
}

/// EIO if a request of the list has failed.
///
/// # Safety
/// As for lio_listio(3).
unsafe fn check_all_succeeded(list: &[*const Aiocb]) -> Result<(), Errno> {
    let generation = ProcessState::current_generation();
    let any_failed = blocks(list).any(|block| {
        // SAFETY: the caller's promise.
        let is_nop = unsafe { block.fields() }.opcode == LIO_NOP;
        !is_nop && !matches!(block.status(generation), Status::Done(0))
    });
    if any_failed { Err(Errno::IO) } else { Ok(()) }
}
