//! fallocate: allocates space for a file, or makes holes in it.

use std::os::fd::AsFd;

use io_uring::{opcode, squeue};
use rustix::fs::FallocateFlags;

use super::operation::{Operation, Registered};
use crate::handle::Handle;
use crate::sys::Errno;

bitflags::bitflags! {
    /// The mode of [`Fallocate`]: `FALLOC_FL_*` of fallocate(2). Without flags it allocates.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FallocateMode: u32 {
        /// Does not change the size of the file.
        const KEEP_SIZE = 0x1;
        /// Makes a hole. Needs `KEEP_SIZE`.
        const PUNCH_HOLE = 0x2;
        /// Removes the range. The data after the range moves to `offset`.
        const COLLAPSE_RANGE = 0x8;
        /// Fills the range with zeros.
        const ZERO_RANGE = 0x10;
        /// Inserts a hole. The data from `offset` on moves to higher offsets.
        const INSERT_RANGE = 0x20;
        /// Gives each part of the range that shares its blocks with another file its own blocks.
        const UNSHARE_RANGE = 0x40;
        const _ = !0;
    }
}

/// Manipulates a file's space: fallocate(2).
#[derive(Debug)]
pub struct Fallocate {
    handle: Handle,
    mode: FallocateMode,
    offset: u64,
    len: u64,
}

impl Fallocate {
    /// Applies `mode` to `len` bytes from `offset` on. Without flags it allocates space.
    pub fn new(handle: &Handle, mode: FallocateMode, offset: u64, len: u64) -> Fallocate {
        Fallocate {
            handle: handle.clone(),
            mode,
            offset,
            len,
        }
    }
}

impl Operation for Fallocate {
    const OPCODE: u8 = opcode::Fallocate::CODE;
    const NAME: &'static str = "fallocate";
    const IN_SLOT: bool = true;

    fn handle(&self) -> Option<&Handle> {
        Some(&self.handle)
    }

    fn sqe(&mut self, known: &Registered<'_>) -> squeue::Entry {
        opcode::Fallocate::new(known.fd(&self.handle), self.len)
            .offset(self.offset)
            .mode(self.mode.bits().cast_signed())
            .build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        rustix::fs::fallocate(
            self.handle.as_fd(),
            FallocateFlags::from_bits_retain(self.mode.bits()),
            self.offset,
            self.len,
        )
        .map(|()| 0)
    }
}
