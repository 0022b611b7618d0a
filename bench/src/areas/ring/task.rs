//! The work of one turn, and its result.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use nowait_cli::stop::Stop;

/// The work of one turn.
#[derive(Debug)]
pub struct Task {
    /// Open with O_DIRECT.
    pub files: Vec<File>,
    /// How many blocks of each file are read.
    pub blocks: u64,
    /// Bytes of one read.
    pub block: u32,
    /// How many reads are in flight.
    pub depth: u32,
    /// How many completions one system call waits for.
    pub batch: u32,
    pub time: Duration,
    pub seed: u64,
    /// Files and memory are registered with the ring.
    pub registered: bool,
    pub stop: Stop,
}

impl Task {
    /// The error of a read that returned fewer bytes than a block.
    pub fn short(&self, n: usize) -> io::Error {
        let block = self.block;
        io::Error::other(format!(
            "a read of {block} bytes returned {n}: another program has truncated the file; name one that no \
             other program changes"
        ))
    }

    /// Returns true if a turn that began at this time is over.
    pub fn is_over(&self, began: Instant) -> bool {
        began.elapsed() >= self.time || self.stop.asked()
    }
}

/// The result of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub reads: u64,
    pub seconds: f64,
}
