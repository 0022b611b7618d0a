//! nop: nothing, by way of the engine. It measures the way.

use io_uring::{opcode, squeue};

use super::operation::{Known, Operation};
use crate::sys::Errno;

/// Does nothing: what a handoff costs by itself.
#[derive(Debug, Default)]
pub struct Nop;

impl Operation for Nop {
    const OPCODE: u8 = opcode::Nop::CODE;
    const NAME: &'static str = "nop";

    fn sqe(&mut self, _: &Known<'_>) -> squeue::Entry {
        opcode::Nop::new().build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        Ok(0)
    }
}
