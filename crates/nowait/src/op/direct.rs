//! open, read and close of a file without a descriptor. The file is opened into a slot of a set of
//! registered files. Only rings support this.
#![allow(unsafe_code)]

use std::ffi::CString;

use io_uring::{opcode, squeue, types};
use rustix::fs::{Mode, OFlags};

use super::openat2::how;
use super::operation::{Known, Operation, Step};
use crate::buffer::Buffer;
use crate::buffer::memory::ReadMemory;
use crate::cast::to_u32;
use crate::registered::{DirectSlot, Slot};
use crate::sys::Errno;
use crate::sys::rw::{MAX_RW, checked};

/// A slot number for which the kernel returns an error, because it is not in the table.
const NOWHERE: u32 = u32::MAX - 2;

/// Opens a file into a slot: openat2(2) with a direct descriptor (Linux 5.15, io_uring_enter(2)).
///
/// With [`ReadDirect`] and [`CloseDirect`] in a [`Chain`](crate::engine::Chain), one submission
/// reads a small file. If the file is not closed explicitly, it is closed when the last clone of
/// the slot is dropped.
///
/// ```
/// use nowait::engine::{Chain, LocalEngine, Wait};
/// use nowait::op::{CloseDirect, Kind, OpenDirect, ReadDirect};
/// let mut engine = LocalEngine::new()?;
/// let files = engine.file_set(64)?;
/// let mut tickets = 0;
/// for path in [c"Cargo.toml", c"src/lib.rs"] {
///     let slot = files.reserve()?;
///     let chain = Chain::new()
///         .then(OpenDirect::new(&slot, path.into(), libc::O_RDONLY, 0))
///         .then(ReadDirect::new(&slot, Box::new(vec![0; 4096]), 0))
///         .then(CloseDirect::new(&slot));
///     match engine.submit_chain(chain) {
///         Ok(members) => tickets += members.len(),
///         Err(refused) => println!("{refused}"),
///     }
/// }
/// let mut done = Vec::new();
/// engine.reap(&mut done, Wait::For(tickets))?;
/// for completion in done {
///     assert!(completion.result.is_ok());
///     if let Kind::ReadDirect(read) = completion.op.into_kind() {
///         let _bytes = read.into_buffer();
///     }
/// }
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Debug)]
pub struct OpenDirect {
    slot: DirectSlot,
    path: CString,
    how: Box<types::OpenHow>,
}

impl OpenDirect {
    /// Opens `path`, relative to the current directory. `flags` are those of open(2). `mode` has
    /// the permission bits of a file that is created. O_CLOEXEC has no meaning here and is removed.
    pub fn new(slot: &DirectSlot, path: CString, flags: i32, mode: u32) -> OpenDirect {
        let flags = OFlags::from_bits_retain(flags.cast_unsigned()) - OFlags::CLOEXEC;
        OpenDirect {
            slot: slot.clone(),
            path,
            how: Box::new(how(flags, Mode::from_raw_mode(mode)).0),
        }
    }
}

impl Operation for OpenDirect {
    const OPCODE: u8 = opcode::OpenAt2::CODE;
    const NAME: &'static str = "open_direct";
    const RING_ONLY: bool = true;

    fn slot(&self) -> Option<&Slot> {
        Some(self.slot.slot())
    }

    fn sqe(&mut self, known: &Known<'_>) -> squeue::Entry {
        let slot = known.slot.unwrap_or(NOWHERE);
        let slot = types::DestinationSlot::try_from_slot_target(slot).ok();
        opcode::OpenAt2::new(
            types::Fd(libc::AT_FDCWD),
            self.path.as_ptr(),
            &raw const *self.how,
        )
        .file_index(slot)
        .build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        Err(Errno::NOSYS)
    }
}

/// Reads into one buffer from a file in a slot, like [`Read`](super::Read) from a file with a
/// descriptor. The read is short only at the end of the file.
#[derive(Debug)]
pub struct ReadDirect {
    slot: DirectSlot,
    memory: ReadMemory,
    offset: u64,
    done: usize,
}

impl ReadDirect {
    /// Reads from `offset` on until the buffer is full or the file ends.
    pub fn new(slot: &DirectSlot, buffer: Buffer, offset: u64) -> ReadDirect {
        ReadDirect {
            slot: slot.clone(),
            memory: ReadMemory::new(buffer),
            offset,
            done: 0,
        }
    }

    /// Returns the buffer, with the bytes that were read.
    pub fn into_buffer(self) -> Buffer {
        self.memory.into_buffer()
    }

    fn fill(&mut self, done: usize) {
        // SAFETY: the kernel wrote these bytes through that memory.
        unsafe { self.memory.fill(done) };
    }
}

impl Operation for ReadDirect {
    const OPCODE: u8 = opcode::Read::CODE;
    const NAME: &'static str = "read_direct";
    const IN_SLOT: bool = true;
    const RING_ONLY: bool = true;

    fn slot(&self) -> Option<&Slot> {
        Some(self.slot.slot())
    }

    fn sqe(&mut self, known: &Known<'_>) -> squeue::Entry {
        let (start, left) = self.memory.skip(self.done);
        // The kernel refuses a range beyond the largest file size. An offset of −1 must not be
        // passed, because it means the file's own position.
        let offset = self.offset.saturating_add(self.done as u64);
        let offset = checked(Some(offset), left).map_or(i64::MAX as u64, |()| offset);
        let fd = known
            .slot
            .map_or(types::Fd(-1), |slot| types::Fd(slot.cast_signed()));
        let len = left.min(MAX_RW);
        match known.buffer(true, start, len) {
            Some(number) => opcode::ReadFixed::new(fd, start, to_u32(len), number)
                .offset(offset)
                .build(),
            None => opcode::Read::new(fd, start, to_u32(len))
                .offset(offset)
                .build(),
        }
    }

    fn run(&mut self) -> Result<usize, Errno> {
        Err(Errno::NOSYS)
    }

    fn settle(&mut self, result: Result<usize, Errno>) -> Step {
        match result {
            Ok(n) => {
                let len = self.memory.len();
                self.done += n.min(len - self.done);
                if n == 0 || self.done == len {
                    self.fill(self.done);
                    Step::Done(Ok(self.done))
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

/// Closes the file in a slot, which can then be used for another file: close(2) on a direct
/// descriptor.
#[derive(Debug)]
pub struct CloseDirect {
    slot: DirectSlot,
}

impl CloseDirect {
    /// Closes the file in this slot.
    pub fn new(slot: &DirectSlot) -> CloseDirect {
        CloseDirect { slot: slot.clone() }
    }
}

impl Operation for CloseDirect {
    const OPCODE: u8 = opcode::Close::CODE;
    const NAME: &'static str = "close_direct";
    const RING_ONLY: bool = true;

    fn slot(&self) -> Option<&Slot> {
        Some(self.slot.slot())
    }

    fn sqe(&mut self, known: &Known<'_>) -> squeue::Entry {
        let slot = known.slot.unwrap_or(NOWHERE);
        opcode::Close::new(types::Fixed(slot)).build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        Err(Errno::NOSYS)
    }
}
