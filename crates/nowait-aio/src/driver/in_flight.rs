//! A request in flight, and how far the driver is with it.

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::request::{Opcode, Outcome, Request};

pub struct InFlight {
    pub request: Request,
    /// The flags of the open file at submission.
    pub file_flags: OFlags,
    /// The ID of its open file.
    pub file: u64,
    /// The epoch of a transfer in its inode's `SyncBarrier`.
    pub sync_epoch: u64,
    /// The engine has it.
    pub is_in_engine: bool,
    /// A transfer on a stream was tried, and the stream was not ready.
    pub was_tried: bool,
    /// Bytes that were read from or written to a stream so far.
    pub transferred: usize,
}

impl InFlight {
    pub fn new(request: Request, file_flags: OFlags, file: u64) -> InFlight {
        InFlight {
            request,
            file_flags,
            file,
            sync_epoch: 0,
            is_in_engine: false,
            was_tried: false,
            transferred: 0,
        }
    }

    /// True if the request cannot be cancelled. A read that waits for data can be cancelled. A
    /// write that waits for room has begun, as with glibc, whose thread is in write(2).
    pub fn has_begun(&self) -> bool {
        let is_write = self.request.opcode == Opcode::Write;
        self.is_in_engine || self.transferred > 0 || self.was_tried && is_write
    }

    /// True for a write with O_APPEND.
    pub fn is_append(&self) -> bool {
        self.request.opcode == Opcode::Write && self.file_flags.contains(OFlags::APPEND)
    }

    /// Adds the result of a call to a stream's request. Returns the result of the request if it is
    /// done. As write(2) does, a write goes on until all bytes are written, if it may wait.
    pub fn add_transferred(&mut self, outcome: Outcome) -> Option<Outcome> {
        match outcome {
            Ok(n) => {
                self.transferred += n;
                let is_part = n > 0 && self.transferred < self.request.buf.len();
                let is_read = self.request.opcode == Opcode::Read;
                (is_read || !is_part).then_some(Ok(self.transferred))
            }
            Err(Errno::INTR) => None,
            // The bytes that were written before are the result. The next write gets the error.
            Err(_) if self.transferred > 0 => Some(Ok(self.transferred)),
            Err(errno) => Some(Err(errno)),
        }
    }
}
