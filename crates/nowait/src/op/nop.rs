//! nop: does nothing, but passes through the engine.

use io_uring::{opcode, squeue};

use super::operation::{Operation, Registered};
use crate::sys::Errno;

/// Does nothing. It measures the cost of a handoff.
#[derive(Debug, Default)]
pub struct Nop;

impl Operation for Nop {
    const OPCODE: u8 = opcode::Nop::CODE;
    const NAME: &'static str = "nop";

    fn sqe(&mut self, _: &Registered<'_>) -> squeue::Entry {
        opcode::Nop::new().build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        Ok(0)
    }
}
