//! A request of the program, checked, with everything that outlives the call.

use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::abi::AIO_PRIO_DELTA_MAX;
use crate::control_block::{ControlBlock, Fields};
use crate::notify::{Notification, RequestList};

mod buffer;

pub use buffer::Buffer;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    Read,
    Write,
    /// fsync(2).
    Sync,
    /// fdatasync(2).
    DataSync,
}

impl Opcode {
    /// True for reads and writes.
    pub fn is_transfer(self) -> bool {
        matches!(self, Opcode::Read | Opcode::Write)
    }
}

/// The result of a request: the number of bytes that were read or written.
pub type Outcome = Result<usize, Errno>;

#[derive(Debug)]
pub struct Request {
    pub block: ControlBlock,
    /// The program's descriptor at submission. The program may have given its number to another file since.
    pub fildes: RawFd,
    pub opcode: Opcode,
    pub buf: Buffer,
    pub offset: u64,
    pub notification: Notification,
    /// The list that the request was submitted with, if the program is notified of the whole list.
    pub list: Option<Arc<RequestList>>,
}

impl Request {
    /// Checks the fields that the program has set.
    pub fn new(
        block: ControlBlock,
        fields: &Fields,
        opcode: Opcode,
        list: Option<Arc<RequestList>>,
    ) -> Result<Request, Errno> {
        let notification = Notification::new(&fields.sigevent)?;
        let is_transfer = opcode.is_transfer();
        // aio_fsync(3) ignores these fields.
        if is_transfer
            && (fields.offset < 0
                || fields.nbytes > isize::MAX as usize
                || !(0..=AIO_PRIO_DELTA_MAX).contains(&fields.reqprio))
        {
            return Err(Errno::INVAL);
        }
        Ok(Request {
            block,
            fildes: fields.fildes,
            opcode,
            buf: Buffer {
                start: fields.buf,
                len: if is_transfer { fields.nbytes } else { 0 },
            },
            offset: fields.offset.max(0) as u64,
            notification,
            list,
        })
    }
}
