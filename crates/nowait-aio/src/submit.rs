//! Submits one request: completes it within the call if the page cache has the data, or if it
//! cannot be carried out, and queues it otherwise.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::control_block::{ControlBlock, Fields};
use crate::counters::increment;
use crate::notify::RequestList;
use crate::process_state::ProcessState;
use crate::queue::{FileRef, Submission, SubmissionQueue};
use crate::request::{Opcode, Request};
use crate::sys::signal;

mod cached_read;
pub mod completion;
pub mod file_flags;

use cached_read::{CachedRead, try_cached_read};
use completion::complete;
use file_flags::file_flags_for;

/// Checks a request, and marks its block as in progress. EINVAL if the block is in flight already.
pub fn begin(
    process: &ProcessState,
    block: ControlBlock,
    fields: &Fields,
    opcode: Opcode,
    list: Option<Arc<RequestList>>,
) -> Result<Request, Errno> {
    if block.status(process.generation()).is_in_flight() {
        return Err(Errno::INVAL);
    }
    let request = Request::new(block, fields, opcode, list);
    block.begin(process.generation());
    request.inspect_err(|errno| block.complete(Err(*errno)))
}

/// Completes a request or queues it. A bad descriptor or buffer is an error of the request,
/// reported by aio_error(3). An error of this function is a lack of resources.
pub fn submit(process: &ProcessState, request: Request) -> Result<(), Errno> {
    let counters = process.counters.of(request.opcode);
    let file_flags = match file_flags_for(request.fildes, request.opcode) {
        Ok(_) if request.buf.is_null() => Err(Errno::FAULT),
        file_flags => file_flags,
    };
    let file_flags = match file_flags {
        Ok(file_flags) => file_flags,
        Err(errno) => {
            complete(&request, Err(errno));
            return Ok(());
        }
    };
    // SAFETY: Assumption: `file_flags_for` found an open file. If another thread of the program
    // closes it meanwhile, calls fail with EBADF or use the file that has the number then, as with
    // any other call on a descriptor that another thread closes.
    let fd = unsafe { BorrowedFd::borrow_raw(request.fildes) };
    let in_flight = process.queue().map_or(0, SubmissionQueue::in_flight);
    if request.opcode == Opcode::Read
        && let CachedRead::Done(outcome) =
            try_cached_read(fd, file_flags, &request, counters, in_flight)
    {
        complete(&request, outcome);
        return Ok(());
    }
    increment(&counters.handoffs);
    enqueue(process, fd, request, file_flags)
}

/// Queues a request, with signals blocked: a handler that waits for the driver must not interrupt a
/// thread that holds something the driver needs.
fn enqueue(
    process: &ProcessState,
    fd: BorrowedFd<'_>,
    request: Request,
    file_flags: OFlags,
) -> Result<(), Errno> {
    signal::with_all_blocked(|| match reserve(process, fd, &request) {
        Ok((queue, file)) => {
            queue.submit(Submission {
                request,
                file_flags,
                file,
            });
            Ok(())
        }
        // Another thread has closed the descriptor.
        Err(Errno::BADF) => {
            complete(&request, Err(Errno::BADF));
            Ok(())
        }
        Err(errno) => {
            request.block.complete(Err(errno));
            Err(errno)
        }
    })
}

/// Starts the driver and the notifier if needed, reserves a place in the queue, and passes the
/// file.
fn reserve(
    process: &ProcessState,
    fd: BorrowedFd<'_>,
    request: &Request,
) -> Result<(&'static SubmissionQueue, FileRef), Errno> {
    loop {
        let reserved = process.queue_or_start_driver().and_then(|queue| {
            if !request.notification.is_none() || request.list.is_some() {
                queue.notifier.ensure_started()?;
            }
            Ok((queue, queue.reserve(fd)?))
        });
        // EPIPE: the program has closed the queue's descriptor. The next try makes a new queue.
        if !matches!(reserved, Err(Errno::PIPE)) {
            return reserved;
        }
    }
}
