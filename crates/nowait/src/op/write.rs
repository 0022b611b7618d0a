//! write: one buffer, written to a file.
#![allow(unsafe_code)]

use std::os::fd::AsFd;

use io_uring::{opcode, squeue};

use super::operation::{Operation, Registered, Step, ring_offset, transfer};
use crate::buffer::memory::WriteMemory;
use crate::buffer::{RawMemory, Source};
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::sys::Errno;
use crate::sys::cast::to_u32;
use crate::sys::rw::{self, MAX_RW, Offset};

/// Writes one buffer: pwrite(2), or write(2) without an offset. It makes one kernel write, whose
/// count may be short (a full disk, a signal). With [`all`](Write::all) it continues until
/// everything is written.
#[derive(Debug)]
pub struct Write {
    handle: Handle,
    memory: WriteMemory,
    offset: Offset,
    flags: RwFlags,
    done: usize,
    /// The count of the last run, also of one that ended with an error.
    written: usize,
    all: bool,
}

impl Write {
    /// Writes at `offset`. It calls [`IoBuf::bytes`](crate::IoBuf::bytes) once.
    #[inline]
    pub fn new(handle: &Handle, source: Source, offset: u64) -> Write {
        Write::of_memory(handle, WriteMemory::new(source), Some(offset))
    }

    /// Writes at the file's own position, like write(2). Use it for pipes and files opened with
    /// O_APPEND.
    pub fn stream(handle: &Handle, source: Source) -> Write {
        Write::of_memory(handle, WriteMemory::new(source), None)
    }

    /// Writes memory that the program keeps, without an allocation. `None` is the file's own
    /// position. Otherwise it is like [`new`](Write::new) and [`stream`](Write::stream).
    #[inline]
    pub fn raw(handle: &Handle, memory: RawMemory, offset: Option<u64>) -> Write {
        Write::of_memory(handle, WriteMemory::raw(memory), offset)
    }

    #[inline]
    fn of_memory(handle: &Handle, memory: WriteMemory, offset: Offset) -> Write {
        Write {
            handle: handle.clone(),
            memory,
            offset,
            flags: RwFlags::empty(),
            done: 0,
            written: 0,
            all: false,
        }
    }

    /// Continues after short writes until everything is written or an error occurs.
    #[must_use]
    pub fn all(mut self) -> Write {
        self.all = true;
        self
    }

    /// The number of bytes that the completed operation has written, also if it ended with an error:
    /// [`all`](Write::all) returns the error alone.
    #[inline]
    pub fn written(&self) -> usize {
        self.written
    }

    /// Returns the source of the write.
    #[inline]
    pub fn into_source(mut self) -> Source {
        self.take_source()
    }

    #[inline]
    pub(crate) fn take_source(&mut self) -> Source {
        self.memory.take_source()
    }

    /// Records that the first `done` bytes are written.
    pub(crate) fn advance(&mut self, done: usize) {
        self.done = done;
    }

    /// The address and length of the bytes that are left.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (usize, usize)> {
        let (start, len, _) = self.next();
        std::iter::once((start.addr(), len))
    }

    fn next(&self) -> (*const u8, usize, Offset) {
        let (start, left) = self.memory.skip(self.done);
        (
            start,
            left.min(MAX_RW),
            self.offset.map(|o| o.saturating_add(self.done as u64)),
        )
    }
}

transfer!(Write);

impl Operation for Write {
    const OPCODE: u8 = opcode::Write::CODE;
    const NAME: &'static str = "write";
    const IN_SLOT: bool = true;

    fn handle(&self) -> Option<&Handle> {
        Some(&self.handle)
    }

    fn sqe(&mut self, known: &Registered<'_>) -> squeue::Entry {
        let (start, len, offset) = self.next();
        let (fd, len32) = (known.fd(&self.handle), to_u32(len));
        let (offset, flags) = (ring_offset(offset), self.flags.bits().cast_signed());
        match known.buffer(self.handle.is_seekable(), start, len) {
            Some(number) => opcode::WriteFixed::new(fd, start, len32, number)
                .offset(offset)
                .rw_flags(flags)
                .build(),
            None => opcode::Write::new(fd, start, len32)
                .offset(offset)
                .rw_flags(flags)
                .build(),
        }
    }

    fn run(&mut self) -> Result<usize, Errno> {
        let (start, len, offset) = self.next();
        rw::checked(offset, len)?;
        // SAFETY: `start` and `len` are within the bytes that this operation owns.
        unsafe { rw::pwritev2_raw(self.handle.as_fd(), start, len, offset, self.flags.bits()) }
    }

    fn settle(&mut self, result: Result<usize, Errno>) -> Step {
        if let Ok(n) = result {
            self.done += n;
            let (_, left, _) = self.next();
            if self.all && n > 0 && left > 0 {
                return Step::Again;
            }
        }
        // The program may submit the operation again.
        let done = std::mem::take(&mut self.done);
        self.written = done;
        Step::Done(match result {
            // Like write(2): the bytes written count, and the next write returns the error.
            Err(errno) if self.all || done == 0 => Err(errno),
            _ => Ok(done),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_before_an_error_counts_unless_all_was_to_be() {
        let handle = Handle::new(tempfile::tempfile().unwrap()).unwrap();
        let begun = || {
            let mut write = Write::new(&handle, Box::new("bytes"), 0);
            write.advance(3);
            write
        };
        let ended = |mut write: Write, errno| match write.settle(Err(errno)) {
            Step::Done(result) => (result, write.written()),
            Step::Again => panic!("an error ends it"),
        };
        for errno in [Errno::NOSPC, Errno::CANCELED] {
            assert_eq!(ended(begun(), errno), (Ok(3), 3));
            assert_eq!(ended(begun().all(), errno), (Err(errno), 3));
            let none = Write::new(&handle, Box::new("bytes"), 0);
            assert_eq!(ended(none, errno), (Err(errno), 0));
        }
    }
}
