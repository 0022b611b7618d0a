//! The places of the reads: the same in Rust and in C, drawn with the same arithmetic (xorshift64).

use super::task::Task;

/// A stream of places.
#[derive(Debug)]
pub struct Places {
    state: u64,
    blocks: u64,
    all: u64,
    block: u64,
}

impl Places {
    pub fn new(task: &Task) -> Places {
        Places {
            state: task.seed | 1,
            blocks: task.blocks,
            all: task.blocks * task.files.len() as u64,
            block: u64::from(task.block),
        }
    }

    /// A file's number, and an offset in it.
    #[inline]
    pub fn next(&mut self) -> (usize, u64) {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let at = ((u128::from(self.state) * u128::from(self.all)) >> 64) as u64;
        ((at / self.blocks) as usize, at % self.blocks * self.block)
    }
}
