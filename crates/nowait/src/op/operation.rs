//! The common form of all operations.

use std::os::fd::{AsFd, AsRawFd};

use io_uring::squeue;

use crate::handle::Handle;
use crate::registered::Slot;
use crate::sys::Errno;
use crate::sys::rw::Offset;

/// What a kernel result means for an operation.
#[derive(Debug)]
pub(crate) enum Step {
    /// Not all of it yet (a short read before the end of the file): go on.
    Again,
    /// It is done.
    Done(Result<usize, Errno>),
}

/// What each operation can do. The two forms of one operation stand next to each other.
pub(crate) trait Operation {
    /// The ring's opcode, to ask whether this kernel's ring has it.
    const OPCODE: u8;

    /// Its name, as in errors and statistics.
    const NAME: &'static str;

    /// The file it works on, if it works on an open one.
    fn handle(&self) -> Option<&Handle> {
        None
    }

    /// Whether its entry may name the file by its slot.
    const IN_SLOT: bool = false;

    /// Whether it has no blocking form.
    const RING_ONLY: bool = false;

    /// The slot it concerns, of a set of registered files.
    fn slot(&self) -> Option<&Slot> {
        if Self::IN_SLOT {
            self.handle()?.slot()
        } else {
            None
        }
    }

    /// Asynchronous form: the ring's entry. The entry holds pointers into what `self` owns: `self`
    /// must stay where it is, and untouched, until the kernel's result for it is there.
    fn sqe(&mut self, known: &Known<'_>) -> squeue::Entry;

    /// Blocking form: the same, by system call, once.
    fn run(&mut self) -> Result<usize, Errno>;

    /// Takes in the kernel's result of either form.
    fn settle(&mut self, result: Result<usize, Errno>) -> Step {
        Step::Done(result)
    }
}

/// What a ring knows an operation's file and memory by.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    /// The slot of its file. The entry's flag that says so is the ring's business.
    pub(crate) slot: Option<u32>,
    /// The memory that is registered: which addresses, and as which number.
    pub(crate) memory: &'a [(std::ops::Range<usize>, u16)],
}

impl Known<'_> {
    /// The ring's name for the operation's file.
    pub(super) fn fd(&self, handle: &Handle) -> io_uring::types::Fd {
        let plain = || handle.as_fd().as_raw_fd();
        io_uring::types::Fd(self.slot.map_or_else(plain, u32::cast_signed))
    }

    /// The number of the registered memory that these bytes lie in. Files without offsets, pipes and the
    /// like, have no use for it.
    pub(super) fn buffer(&self, seekable: bool, start: *const u8, len: usize) -> Option<u16> {
        let from = start.addr();
        let (_, number) = self
            .memory
            .iter()
            .find(|(piece, _)| piece.start <= from && from.saturating_add(len) <= piece.end)?;
        (len > 0 && seekable).then_some(*number)
    }
}

/// The offset as the ring takes it: −1 is the file's own position.
pub(super) fn ring_offset(offset: Offset) -> u64 {
    offset.unwrap_or(u64::MAX)
}

/// Whether a short read that gave `got` bytes has met the end of the file.
///
/// A short read in the middle of a file is continued (invariant 2), so only a zero says "end".
/// With O_DIRECT a count that is no multiple of the device's block does too: it occurs only at the
/// end, where the next read would be refused as misaligned.
pub(crate) fn is_end(got: usize, handle: &Handle) -> bool {
    let block = || handle.alignment().map_or(512, |a| a.read_offset as usize);
    got == 0 || (handle.is_direct() && !got.is_multiple_of(block()))
}
