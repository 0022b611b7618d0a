//! fallocate: room for a file, or holes in it.

use std::os::fd::AsFd;

use io_uring::{opcode, squeue};
use rustix::fs::FallocateFlags;

use super::operation::{Known, Operation};
use crate::handle::Handle;
use crate::sys::Errno;

/// Manipulates a file's space: fallocate(2).
#[derive(Debug)]
pub struct Fallocate {
    handle: Handle,
    mode: FallocateFlags,
    offset: u64,
    len: u64,
}

impl Fallocate {
    /// Applies `mode` to `len` bytes from `offset` on; no flags mean "allocate".
    pub fn new(handle: &Handle, mode: FallocateFlags, offset: u64, len: u64) -> Fallocate {
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

    fn sqe(&mut self, known: &Known<'_>) -> squeue::Entry {
        opcode::Fallocate::new(known.fd(&self.handle), self.len)
            .offset(self.offset)
            .mode(self.mode.bits().cast_signed())
            .build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        rustix::fs::fallocate(self.handle.as_fd(), self.mode, self.offset, self.len).map(|()| 0)
    }
}
