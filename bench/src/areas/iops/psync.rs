//! A loop of pread(2): one read at a time at any depth.

use std::os::unix::fs::FileExt;

use nowait_cli::problem::Problem;

use super::load::{Done, Parts, Queue};

/// The read that is next: a file and an offset.
pub struct Psync {
    parts: Parts,
    next: (usize, u64),
}

impl Psync {
    pub fn new(parts: Parts) -> Result<Psync, Problem> {
        Ok(Psync {
            parts,
            next: (0, 0),
        })
    }
}

impl Queue for Psync {
    fn prepare(&mut self, _slot: usize, file: usize, offset: u64) {
        self.next = (file, offset);
    }

    fn submit_and_wait(&mut self, _at_least: usize, done: &mut Vec<Done>) -> Result<(), Problem> {
        let (file, offset) = self.next;
        let read = self.parts.files[file].read_at(&mut self.parts.memory[0], offset);
        done.push((0, read.map_err(|e| Problem::of("read", e))));
        Ok(())
    }
}
