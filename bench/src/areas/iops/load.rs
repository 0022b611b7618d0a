//! What one turn is to do, the same for every contender: files opened with O_DIRECT, batches, one core.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nowait::buffer::PoolBuffer;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::harness::turn::Turn;
use nowait_cli::problem::Problem;

/// One contender's task.
pub struct Load<'a> {
    pub turn: Turn<'a>,
    /// So many are submitted at once, and so many completions are waited for.
    pub batch: usize,
    /// It writes instead of reading.
    pub write: bool,
    /// The core that its thread stays on: woken now here and now there, one contender would be twice as
    /// late as the next.
    pub core: usize,
    /// Whether latencies are asked for.
    pub latencies: bool,
}

impl Load<'_> {
    /// The files, past the page cache.
    pub fn open(&self) -> Result<Vec<File>, Problem> {
        let open = |path: &PathBuf| open(path, self.write);
        self.turn.files.paths.iter().map(open).collect()
    }

    /// Has the calling thread stay on its core.
    pub fn pin(&self) -> Result<(), Problem> {
        let mut cores = CpuSet::new();
        cores.set(self.core);
        sched_setaffinity(None, &cores).map_err(|e| Problem::of("sched_setaffinity", e))
    }

    /// Memory with something in it, for writes; and there before the time runs.
    pub fn filled(mut memory: PoolBuffer) -> PoolBuffer {
        memory.fill(0xa5);
        memory
    }

    /// What it does.
    pub fn verb(&self) -> &'static str {
        if self.write { "write" } else { "read" }
    }
}

/// Opens a file or device with O_DIRECT.
pub fn open(path: &Path, write: bool) -> Result<File, Problem> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(direct)
        .open(path)
        .map_err(|e| {
            let shown = path.display();
            let hint = match e.raw_os_error() {
                Some(libc::EINVAL) => "; its filesystem has no O_DIRECT: name one elsewhere",
                _ => "",
            };
            Problem::Failed(format!("cannot open {shown} with O_DIRECT: {e}{hint}"))
        })
}

/// The last core that this process may run on: the first is where a small machine takes its
/// interrupts.
pub fn last_core() -> Result<usize, Problem> {
    let cores = sched_getaffinity(None).map_err(|e| Problem::of("sched_getaffinity", e))?;
    let mut mine = (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core));
    Ok(mine.next_back().unwrap_or(0))
}
