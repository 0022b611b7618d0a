//! A request of the program, checked, with everything that outlives the call.

use std::os::fd::RawFd;
use std::sync::Arc;

use nowait::buffer::RawMemory;
use rustix::io::Errno;

use crate::abi::AIO_PRIO_DELTA_MAX;
use crate::control_block::{ControlBlock, Fields};
use crate::notify::{Notification, RequestList};

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
    /// The program's descriptor at submission. The program may have given its number to another
    /// file since.
    pub fildes: RawFd,
    pub opcode: Opcode,
    /// The program keeps it valid, and does not use it until the request is done, as POSIX demands.
    pub buf: RawMemory,
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
        let len = if is_transfer { fields.nbytes } else { 0 };
        // SAFETY: Assumption: as POSIX demands, the program keeps the buffer valid, and does not
        // use it until the request is done.
        let buf = unsafe { RawMemory::new(fields.buf, len) };
        Ok(Request {
            block,
            fildes: fields.fildes,
            opcode,
            buf,
            offset: fields.offset.max(0) as u64,
            notification,
            list,
        })
    }
}
