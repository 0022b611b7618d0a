//! A request: what the program asked for, checked, and everything that outlives the call.

use std::os::fd::RawFd;
use std::sync::Arc;

use nowait::buffer::{IoBuf, IoBufMut, Space};
use rustix::io::Errno;

use crate::abi::AIO_PRIO_DELTA_MAX;
use crate::control_block::{ControlBlock, Fields};
use crate::notify::{Notification, RequestList};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    /// fsync(2).
    Sync,
    /// fdatasync(2).
    DataSync,
}

/// A request on its way.
#[derive(Debug)]
pub struct Request {
    pub block: ControlBlock,
    /// The number by which the program named the file; since then it may be another file's.
    pub fildes: RawFd,
    pub kind: Kind,
    pub memory: Memory,
    pub offset: u64,
    pub notification: Notification,
    /// The list it was submitted with, if that wants to be told when all of it is done.
    pub list: Option<Arc<RequestList>>,
}

impl Request {
    /// Checks what the program has filled in.
    pub fn new(
        block: ControlBlock,
        fields: &Fields,
        kind: Kind,
        list: Option<Arc<RequestList>>,
    ) -> Result<Request, Errno> {
        let notification = Notification::new(&fields.sigevent)?;
        let transfer = matches!(kind, Kind::Read | Kind::Write);
        // Of a synchronisation the other asked are ignored.
        if transfer
            && (fields.offset < 0
                || fields.nbytes > isize::MAX as usize
                || !(0..=AIO_PRIO_DELTA_MAX).contains(&fields.reqprio))
        {
            return Err(Errno::INVAL);
        }
        Ok(Request {
            block,
            fildes: fields.fildes,
            kind,
            memory: Memory {
                start: fields.buf,
                len: if transfer { fields.nbytes } else { 0 },
            },
            offset: fields.offset.max(0) as u64,
            notification,
            list,
        })
    }
}

/// The program's buffer, which it leaves alone until the request is done.
///
/// It becomes the buffer of an operation: the operation owns not the memory, but the right to it.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub start: *mut u8,
    pub len: usize,
}

// SAFETY: Assumption: POSIX has the program keep the buffer valid and to itself until the request is
// done. Only the kernel reads or writes it, and says EFAULT if it is not there after all.
unsafe impl Send for Memory {}

impl Memory {
    /// All of it: for a closure, which must take it whole to be `Send`.
    pub fn whole(self) -> Memory {
        self
    }

    /// Whether it is memory that no program can mean.
    pub fn is_null(&self) -> bool {
        self.start.is_null() && self.len > 0
    }

    /// The same memory without its first bytes.
    #[must_use]
    pub fn skip(self, n: usize) -> Memory {
        let n = n.min(self.len);
        Memory {
            start: self.start.wrapping_add(n),
            len: self.len - n,
        }
    }

    /// Its start, for a slice: a slice of no bytes too must not begin at null.
    fn slice_start(&self) -> *mut u8 {
        if self.start.is_null() {
            std::ptr::dangling_mut()
        } else {
            self.start
        }
    }
}

impl IoBufMut for Memory {
    fn space(&mut self) -> Space<'_> {
        // SAFETY: Assumption: as for `Send`; a null one was turned away. The bytes may be
        // uninitialised, and nobody but the kernel touches them through this.
        Space::Uninit(unsafe {
            std::slice::from_raw_parts_mut(self.slice_start().cast(), self.len)
        })
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

impl IoBuf for Memory {
    fn bytes(&self) -> &[u8] {
        // SAFETY: as above; operations look at address and length only.
        unsafe { std::slice::from_raw_parts(self.slice_start(), self.len) }
    }
}

/// The result of a request: the number of bytes that were read or written.
pub type Outcome = Result<usize, Errno>;
