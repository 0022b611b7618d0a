//! Reads and writes of a stream (a file without offsets), as far as they do not wait.

use std::os::fd::AsFd;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::driver::in_flight::InFlight;
use crate::driver::open_file::{Direction, OpenFile};
use crate::request::Outcome;
use crate::sys::rw;

/// The result of a try.
pub enum Transfer {
    /// The request is done.
    Done(Outcome),
    /// The stream is not ready.
    NotReady,
    /// The request needs a read(2) or write(2), which may wait.
    MayBlock,
}

/// Transfers as many bytes of a request as possible without waiting.
pub fn transfer(file: &OpenFile, request: &mut InFlight, direction: Direction) -> Transfer {
    let is_write = direction == Direction::Write;
    let may_wait = !request.file_flags.contains(OFlags::NONBLOCK);
    loop {
        let rest = request.request.buf.skip(request.transferred);
        let is_empty = request.request.buf.is_empty();
        let outcome = if !is_empty {
            // SAFETY: the memory is the buffer of a request in flight: see `Request`.
            unsafe { rw::transfer_nowait(file.as_fd(), is_write, rest.start(), rest.len()) }
        } else if is_write {
            rw::send_empty(file.as_fd()).map(|()| 0)
        } else {
            Err(Errno::NOTSOCK)
        };
        match outcome {
            Err(Errno::AGAIN) if may_wait => return Transfer::NotReady,
            // preadv2(2) and pwritev2(2) of no bytes do not reach the file. read(2) and write(2)
            // do.
            Err(Errno::NOTSOCK) if is_empty => {
                return match file.check_access(direction) {
                    Err(errno) => Transfer::Done(Err(errno)),
                    Ok(()) => Transfer::MayBlock,
                };
            }
            // The kernel has no RWF_NOWAIT for this file, or not these calls.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                return match file.check_access(direction) {
                    Err(errno) => Transfer::Done(Err(errno)),
                    Ok(()) if may_wait && !file.is_ready(direction) => Transfer::NotReady,
                    Ok(()) => Transfer::MayBlock,
                };
            }
            outcome => {
                if let Some(outcome) = request.add_transferred(outcome) {
                    return Transfer::Done(outcome);
                }
            }
        }
    }
}
