//! The work of one turn, the same for every contender: files opened with O_DIRECT, batches, one
//! core.

use std::fs::File;
use std::path::PathBuf;

use nowait::buffer::PoolBuffer;

use crate::harness::cores;
use crate::harness::files::open_direct;
use crate::harness::turn::Turn;
use nowait_cli::problem::Problem;

/// The work of one turn.
pub struct Load<'a> {
    pub turn: Turn<'a>,
    /// How many completions one call waits for.
    pub batch: usize,
    /// True for writes, false for reads.
    pub write: bool,
    /// The core that the thread stays on. Otherwise latencies would depend on the core on which the
    /// scheduler wakes the thread.
    pub core: usize,
    /// True if latencies are measured.
    pub latencies: bool,
}

impl Load<'_> {
    /// Opens the files past the page cache.
    pub fn open(&self) -> Result<Vec<File>, Problem> {
        let open = |path: &PathBuf| open_direct(path, self.write);
        self.turn.files.paths.iter().map(open).collect()
    }

    /// Restricts the calling thread to its core.
    pub fn pin(&self) -> Result<(), Problem> {
        cores::stay_on(self.core)
    }

    /// Fills memory with data for writes. This also makes the kernel allocate it before the turn
    /// begins.
    pub fn filled(mut memory: PoolBuffer) -> PoolBuffer {
        memory.fill(0xa5);
        memory
    }

    /// The operation in error messages.
    pub fn verb(&self) -> &'static str {
        if self.write { "write" } else { "read" }
    }
}
