//! writev: several buffers, written in order.
#![allow(unsafe_code)]

use std::os::fd::AsFd;

use io_uring::{opcode, squeue};

use super::operation::{Operation, Registered, Step, ring_offset, transfer};
use super::readv::Iovecs;
use crate::buffer::Source;
use crate::buffer::memory::WriteMemory;
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::sys::Errno;
use crate::sys::cast::to_u32;
use crate::sys::rw::{self, Offset};

/// Writes several buffers: pwritev(2), or writev(2) without an offset. It makes one kernel write,
/// whose count may be short.
///
/// One call of the kernel takes at most 1024 buffers (`IOV_MAX`). A write of more is several calls,
/// and a reader or another writer may come between them. It ends after a call that is short or
/// fails, and returns the number of bytes that are written.
#[derive(Debug)]
pub struct Writev {
    handle: Handle,
    sources: Vec<WriteMemory>,
    offset: Offset,
    flags: RwFlags,
    done: usize,
    /// Boxed, to keep operations with one buffer small.
    iovecs: Box<Iovecs>,
}

impl Writev {
    /// Writes at `offset`.
    pub fn new(handle: &Handle, sources: Vec<Source>, offset: u64) -> Writev {
        Writev {
            handle: handle.clone(),
            sources: sources.into_iter().map(WriteMemory::new).collect(),
            offset: Some(offset),
            flags: RwFlags::empty(),
            done: 0,
            iovecs: Box::default(),
        }
    }

    /// Writes at the file's own position, like writev(2).
    pub fn stream(handle: &Handle, sources: Vec<Source>) -> Writev {
        Writev {
            offset: None,
            ..Writev::new(handle, sources, 0)
        }
    }

    /// Returns the sources of the write.
    pub fn into_sources(self) -> Vec<Source> {
        let sources = self.sources.into_iter();
        sources.map(|mut it| it.take_source()).collect()
    }

    /// The addresses and lengths of its memory.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (usize, usize)> {
        self.sources.iter().map(WriteMemory::piece)
    }

    fn next(&mut self) -> Offset {
        let pieces = self.sources.iter().map(|memory| {
            let (start, len) = memory.skip(0);
            (start.cast_mut(), len)
        });
        self.iovecs.describe(pieces, self.done);
        self.offset.map(|o| o.saturating_add(self.done as u64))
    }
}

transfer!(Writev);

impl Operation for Writev {
    const OPCODE: u8 = opcode::Writev::CODE;
    const NAME: &'static str = "writev";
    const IN_SLOT: bool = true;

    fn handle(&self) -> Option<&Handle> {
        Some(&self.handle)
    }

    fn sqe(&mut self, known: &Registered<'_>) -> squeue::Entry {
        let offset = self.next();
        opcode::Writev::new(
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
        // SAFETY: the iovecs were just made from the bytes that this operation owns.
        unsafe { rw::pwritev2_vectored(self.handle.as_fd(), iov, count, offset, self.flags.bits()) }
    }

    fn settle(&mut self, result: Result<usize, Errno>) -> Step {
        if let Ok(n) = result {
            self.done += n;
            if n == self.iovecs.bytes && n < self.iovecs.left {
                return Step::Again;
            }
        }
        // The program may submit the operation again.
        Step::Done(match std::mem::take(&mut self.done) {
            0 => result,
            done => Ok(done),
        })
    }
}
