//! One turn of a peer. It runs in a separate process, so that its processor time can be measured,
//! so that no thread of another peer is left, and so that another build of tokio can take part.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::Advice;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::areas::runtimes::cell::{Cell, Work};
use crate::areas::runtimes::peer::Peer;
use crate::areas::runtimes::places::Places;
use crate::harness::child;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;

/// The description of a turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turn {
    pub peer: Peer,
    pub cell: Cell,
    pub file: PathBuf,
    /// The size of the file.
    pub size: u64,
    pub seconds: f64,
    pub seed: u64,
}

/// The worker threads of a runtime, or the threads with a runtime each.
pub const WORKERS: u64 = 2;
/// A turn that takes longer is killed.
const LONGEST: Duration = Duration::from_secs(120);

impl Turn {
    /// The number of tasks. A peer that blocks has as many as threads.
    pub fn tasks(&self) -> u64 {
        match self.peer {
            Peer::Pread => self.threads(),
            _ => self.cell.tasks,
        }
    }

    /// The number of threads of a peer with a runtime on each: at most one for each task.
    pub fn threads(&self) -> u64 {
        self.cell.tasks.min(WORKERS)
    }

    pub fn workers(&self) -> usize {
        WORKERS as usize
    }

    pub fn block(&self) -> usize {
        self.cell.block as usize
    }

    pub fn is_write(&self) -> bool {
        self.cell.is_write()
    }

    /// True if a task waits for each write to reach the kernel before it makes the next one.
    pub fn waits_for_writes(&self) -> bool {
        self.cell.work == Work::Positional
    }

    /// The order of the places.
    pub fn places(&self) -> Places {
        Places::new(self.cell.blocks(self.size), self.seed)
    }

    /// The offset of the `i`th operation.
    pub fn place(&self, places: &Places, i: u64) -> u64 {
        let block = match self.cell.work {
            Work::Sequential => i % self.cell.blocks(self.size),
            _ => places.block(i),
        };
        block * self.cell.block
    }

    /// Opens the file, as all peers do.
    pub fn open(&self) -> io::Result<std::fs::File> {
        let mut options = std::fs::File::options();
        options.read(!self.is_write()).write(self.is_write());
        let file = options.open(&self.file)?;
        self.advise(&file)?;
        Ok(file)
    }

    /// Gives the advice of all peers on a descriptor: no readahead.
    pub fn advise(&self, file: impl AsFd) -> io::Result<()> {
        Ok(rustix::fs::fadvise(file, 0, None, Advice::Random)?)
    }

    /// Runs the turn in a process of `program`; `None` after Ctrl-C.
    pub fn run(&self, program: &Path, stop: &Stop) -> Result<Option<Value>, Problem> {
        let mut command = Command::new(program);
        command.arg("runtimes-inside");
        let json = |e| Problem::of("JSON of a turn", e);
        let input = serde_json::to_vec(self).map_err(json)?;
        let ended = child::talk(command, &input, Some(LONGEST), stop)?;
        if stop.asked() {
            return Ok(None);
        }
        let round = serde_json::from_str(&ended.said);
        round
            .map(Some)
            .map_err(|e| Problem::of("JSON of a turn", e))
    }
}
