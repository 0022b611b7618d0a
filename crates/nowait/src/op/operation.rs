//! The common interface of all operations.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use io_uring::squeue;

use crate::handle::Handle;
use crate::sys::Errno;
use crate::sys::rw::Offset;

/// The meaning of a kernel result for an operation.
#[derive(Debug)]
pub(crate) enum Step {
    /// The operation is incomplete, for example after a short read before the end of the file, and
    /// continues.
    Again,
    /// The operation is done.
    Done(Result<usize, Errno>),
}

/// The interface of an operation, with its two forms next to each other.
pub(crate) trait Operation {
    /// The io_uring opcode, with which the ring is asked for support.
    const OPCODE: u8;

    /// The name, as in errors and statistics.
    const NAME: &'static str;

    /// The open file that it works on, if there is one.
    fn handle(&self) -> Option<&Handle> {
        None
    }

    /// True if its entry may name the file by its slot.
    const IN_SLOT: bool = false;

    /// The asynchronous form: the submission queue entry. The entry holds pointers to memory that
    /// `self` owns. `self` must not be moved or touched until the completion arrives.
    fn sqe(&mut self, known: &Registered<'_>) -> squeue::Entry;

    /// The blocking form: makes the same system call once.
    fn run(&mut self) -> Result<usize, Errno>;

    /// Handles the kernel's result of either form.
    fn settle(&mut self, result: Result<usize, Errno>) -> Step {
        Step::Done(result)
    }
}

/// The methods that all reads and writes have: those of their offset and their flags.
macro_rules! transfer {
    ($type:ident) => {
        impl $type {
            /// Sets `RWF_*` flags: those of preadv2(2) for a read, those of pwritev2(2) for a
            /// write. A write with [`DSYNC`](RwFlags::DSYNC) completes when its data, and the
            /// metadata needed to read it back, are on the device.
            #[must_use]
            pub fn flags(mut self, flags: RwFlags) -> $type {
                self.flags = flags;
                self
            }

            #[inline]
            pub(crate) fn positional(&self) -> Offset {
                self.offset
            }

            #[inline]
            pub(crate) fn flagged(&self) -> RwFlags {
                self.flags
            }
        }
    };
}

pub(super) use transfer;

/// The registered file and memory that a ring has for an operation.
#[derive(Debug)]
pub(crate) struct Registered<'a> {
    /// The slot of the file. The ring sets the entry's flag for it.
    pub(crate) slot: Option<u32>,
    /// The registered address ranges, with the number of each buffer.
    pub(crate) memory: &'a [(std::ops::Range<usize>, u16)],
}

impl Registered<'_> {
    /// The slot, and the descriptor, of no file.
    pub(crate) const NO_FILE: u32 = u32::MAX;

    /// The descriptor or slot for the operation's entry.
    pub(super) fn fd(&self, handle: &Handle) -> io_uring::types::Fd {
        let plain = || handle.as_fd().as_raw_fd();
        io_uring::types::Fd(self.slot.map_or_else(plain, u32::cast_signed))
    }

    /// The number of the registered buffer that contains these bytes. Files without offsets, such
    /// as pipes, do not support registered buffers.
    pub(super) fn buffer(&self, seekable: bool, start: *const u8, len: usize) -> Option<u16> {
        let from = start.addr();
        let (_, number) = self
            .memory
            .iter()
            .find(|(piece, _)| piece.start <= from && from.saturating_add(len) <= piece.end)?;
        (len > 0 && seekable).then_some(*number)
    }
}

/// The directory that a path is relative to: an open one, or the current directory.
pub(super) fn directory(at: Option<&Handle>) -> BorrowedFd<'_> {
    at.map_or(rustix::fs::CWD, Handle::as_fd)
}

/// The offset for the ring's entry. −1 means the file's own position.
pub(super) fn ring_offset(offset: Offset) -> u64 {
    offset.unwrap_or(u64::MAX)
}

/// Returns true if a short read of `got` bytes reached the end of the file.
///
/// A short read in the middle of a file is continued, so only zero bytes mean the end. With
/// O_DIRECT a count that is not a multiple of the device's block means the end as well. Such a
/// count occurs only there, and the next read would be refused as misaligned.
pub(crate) fn is_end(got: usize, handle: &Handle) -> bool {
    let block = || handle.alignment().map_or(512, |a| a.read_offset as usize);
    got == 0 || (handle.is_direct() && !got.is_multiple_of(block()))
}
