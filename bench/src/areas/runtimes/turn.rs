//! One peer's turn: a process of its own, so that processor time is that peer's, no thread of another
//! one is left, and tokio's other build can take part. It is told its turn as JSON on standard input,
//! and answers with a round on standard output.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use serde::{Deserialize, Serialize};

use crate::areas::runtimes::cell::{Cell, Work};
use crate::areas::runtimes::gate::Gate;
use crate::areas::runtimes::peer::Peer;
use crate::areas::runtimes::places::Places;
use crate::areas::runtimes::round::Round;

/// What one peer is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turn {
    pub peer: Peer,
    pub cell: Cell,
    pub file: PathBuf,
    /// Of the file.
    pub size: u64,
    pub seconds: f64,
    pub seed: u64,
}

/// Worker threads of runtimes that have any; threads with a runtime each of those that have none.
pub const WORKERS: u64 = 2;
/// No turn takes as long as that.
const LONGEST: Duration = Duration::from_secs(120);

impl Turn {
    /// How many tasks there are: what blocks in its thread can't have more than threads.
    pub fn tasks(&self) -> u64 {
        match self.peer {
            Peer::Pread => self.threads(),
            _ => self.cell.tasks,
        }
    }

    /// How many threads, for peers with a runtime on each: not more than tasks.
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

    /// Whether each write is to be done, as far as the kernel, before the next one.
    pub fn waits_for_writes(&self) -> bool {
        self.cell.work == Work::Positional
    }

    /// The order in which places come.
    pub fn places(&self) -> Places {
        Places::new(self.cell.blocks(self.size), self.seed)
    }

    /// Where the `i`th operation goes.
    pub fn place(&self, places: &Places, i: u64) -> u64 {
        let block = match self.cell.work {
            Work::Sequential => i % self.cell.blocks(self.size),
            _ => places.block(i),
        };
        block * self.cell.block
    }

    /// The file, opened as every peer opens it.
    pub fn open(&self) -> io::Result<std::fs::File> {
        let mut options = std::fs::File::options();
        options.read(!self.is_write()).write(self.is_write());
        let file = options.open(&self.file)?;
        self.advise(&file)?;
        Ok(file)
    }

    /// The advice that all descriptors get: no readahead.
    pub fn advise(&self, file: impl AsFd) -> io::Result<()> {
        Ok(rustix::fs::fadvise(file, 0, None, Advice::Random)?)
    }

    /// Has a process of this program take it.
    ///
    /// # Errors
    /// If it does not start, fails, or takes too long.
    pub fn run(&self, program: &Path) -> Result<Round, String> {
        let failed = |what: &str, e: &dyn std::fmt::Display| {
            format!("{} in {}: {what}: {e}", self.peer.name(), self.cell.name)
        };
        let mut child = Command::new(program)
            .arg("runtimes-inside")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| failed(&program.display().to_string(), &e))?;
        if let Some(mut stdin) = child.stdin.take() {
            serde_json::to_writer(&mut stdin, self).map_err(|e| failed("cannot be told", &e))?;
        }
        // A round fits into a pipe.
        let late = Instant::now() + LONGEST;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < late => std::thread::sleep(Duration::from_millis(2)),
                other => {
                    let _ = child.kill();
                    let _ = child.wait();
                    let why = other.err().map_or("it hangs".to_owned(), |e| e.to_string());
                    return Err(failed("stopped", &why));
                }
            }
        };
        let mut said = String::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout
                .read_to_string(&mut said)
                .map_err(|e| failed("cannot be heard", &e))?;
        }
        if !status.success() {
            return Err(failed("failed", &status));
        }
        serde_json::from_str(&said).map_err(|e| failed("said nonsense", &e))
    }
}

/// Takes the turn that standard input tells.
pub fn take() -> Result<(), String> {
    let turn: Turn = serde_json::from_reader(io::stdin().lock()).map_err(|e| e.to_string())?;
    // A file for each of many tasks.
    let _ = rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit {
            current: Some(8192),
            ..rustix::process::getrlimit(rustix::process::Resource::Nofile)
        },
    );
    let gate = Gate::of(turn);
    gate.turn.peer.work(gate).map_err(|e| e.to_string())?;
    let round = gate.round().map_err(|e| e.to_string())?;
    let text = serde_json::to_string(&round).map_err(|e| e.to_string())?;
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|e| e.to_string())
}
