//! readv: several buffers, filled in order.
#![allow(unsafe_code)]

use std::os::fd::AsFd;

use io_uring::{opcode, squeue};

use super::operation::{Operation, Registered, Step, is_end, ring_offset, transfer};
use crate::buffer::Buffer;
use crate::buffer::memory::ReadMemory;
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::sys::Errno;
use crate::sys::cast::to_u32;
use crate::sys::rw::{self, MAX_RW, Offset};

/// Reads into several buffers: preadv(2), or readv(2) without an offset. Short kernel reads are
/// continued as in [`Read`](super::Read).
///
/// One call of the kernel takes at most 1024 buffers (`IOV_MAX`). A read of more is several calls,
/// between which the file may change. Without an offset it is one call, for the first 1024 buffers
/// that have room.
#[derive(Debug)]
pub struct Readv {
    handle: Handle,
    buffers: Vec<ReadMemory>,
    offset: Offset,
    flags: RwFlags,
    done: usize,
    /// Boxed, to keep operations with one buffer small.
    iovecs: Box<Iovecs>,
}

impl Readv {
    /// Reads from `offset` on until all buffers are full or the file ends.
    pub fn new(handle: &Handle, buffers: Vec<Buffer>, offset: u64) -> Readv {
        Readv {
            handle: handle.clone(),
            buffers: buffers.into_iter().map(ReadMemory::new).collect(),
            offset: Some(offset),
            flags: RwFlags::empty(),
            done: 0,
            iovecs: Box::default(),
        }
    }

    /// Reads once at the file's own position, like readv(2).
    pub fn stream(handle: &Handle, buffers: Vec<Buffer>) -> Readv {
        Readv {
            offset: None,
            ..Readv::new(handle, buffers, 0)
        }
    }

    /// Returns the buffers, filled in order.
    pub fn into_buffers(self) -> Vec<Buffer> {
        let buffers = self.buffers.into_iter();
        buffers.map(|mut it| it.take_buffer()).collect()
    }

    /// The addresses and lengths of its memory.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (usize, usize)> {
        self.buffers.iter().map(ReadMemory::piece)
    }

    fn next(&mut self) -> Offset {
        let pieces = self.buffers.iter().map(|memory| memory.skip(0));
        self.iovecs.describe(pieces, self.done);
        self.next_offset()
    }

    /// The offset of the next kernel read.
    pub(crate) fn next_offset(&self) -> Offset {
        self.offset.map(|o| o.saturating_add(self.done as u64))
    }

    /// Ends the read with the first `done` bytes filled, and returns `done`.
    fn fill(&mut self, done: usize) -> usize {
        // The program may submit the operation again.
        self.done = 0;
        let mut left = done;
        for memory in &mut self.buffers {
            let n = memory.len().min(left);
            left -= n;
            // SAFETY: the kernel filled the buffers in order, through that memory.
            unsafe { memory.fill(n) };
        }
        done
    }
}

impl Readv {
    /// The blocking form, once. It returns EAGAIN if it would have to wait.
    pub(crate) fn run_at_once(&mut self) -> Result<usize, Errno> {
        let flags = self.flags;
        self.flags |= RwFlags::NOWAIT;
        let result = self.run();
        self.flags = flags;
        result
    }
}

transfer!(Readv);

impl Operation for Readv {
    const OPCODE: u8 = opcode::Readv::CODE;
    const NAME: &'static str = "readv";
    const IN_SLOT: bool = true;

    fn handle(&self) -> Option<&Handle> {
        Some(&self.handle)
    }

    fn sqe(&mut self, known: &Registered<'_>) -> squeue::Entry {
        let offset = self.next();
        opcode::Readv::new(
            known.fd(&self.handle),
            self.iovecs.as_ptr(),
            to_u32(self.iovecs.count()),
        )
        .offset(ring_offset(offset))
        .rw_flags(self.flags.bits().cast_signed())
        .build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        let offset = self.next();
        rw::checked(offset, self.iovecs.bytes)?;
        let (iov, count) = (self.iovecs.as_ptr(), self.iovecs.count());
        // SAFETY: the iovecs were just made from the buffers that this operation owns.
        unsafe { rw::preadv2_vectored(self.handle.as_fd(), iov, count, offset, self.flags.bits()) }
    }

    fn settle(&mut self, result: Result<usize, Errno>) -> Step {
        match result {
            Ok(n) => {
                let asked = self.iovecs.bytes;
                self.done += n.min(asked);
                let once = self.offset.is_none() || self.flags.contains(RwFlags::NOWAIT);
                let ended = n < asked.min(MAX_RW) && is_end(n, &self.handle);
                if n == self.iovecs.left || once || ended {
                    Step::Done(Ok(self.fill(self.done)))
                } else {
                    Step::Again
                }
            }
            Err(errno) => {
                self.fill(0);
                Step::Done(Err(errno))
            }
        }
    }
}

/// The largest number of iovecs that one call takes.
pub(super) const IOV_MAX: usize = libc::UIO_MAXIOV as usize;

/// The iovecs of one call of a vectored operation, made again for each call.
#[derive(Debug, Default)]
pub(super) struct Iovecs {
    list: Vec<libc::iovec>,
    /// The number of bytes in these iovecs.
    pub(super) bytes: usize,
    /// The number of bytes that are left for this call and the next ones.
    pub(super) left: usize,
}

// SAFETY: the pointers are used only together with the operation that owns their memory.
unsafe impl Send for Iovecs {}
// SAFETY: as above. A shared reference gives no access to that memory.
unsafe impl Sync for Iovecs {}

impl Iovecs {
    /// Makes iovecs for `pieces`, without their first `skip` bytes: as many as one call takes.
    pub(super) fn describe(
        &mut self,
        pieces: impl Iterator<Item = (*mut u8, usize)>,
        mut skip: usize,
    ) {
        self.list.clear();
        (self.bytes, self.left) = (0, 0);
        for (start, len) in pieces {
            let gone = skip.min(len);
            skip -= gone;
            let (start, len) = (start.wrapping_add(gone), len - gone);
            // The kernel limits the sum to MAX_RW.
            self.left = self.left.saturating_add(len);
            if len > 0 && self.list.len() < IOV_MAX {
                self.list.push(libc::iovec {
                    iov_base: start.cast(),
                    iov_len: len,
                });
                self.bytes = self.left;
            }
        }
    }

    pub(super) fn as_ptr(&self) -> *const libc::iovec {
        self.list.as_ptr()
    }

    pub(super) fn count(&self) -> usize {
        self.list.len()
    }
}
