//! The areas whose turns are processes: their figures, and the columns of their tables.

use std::path::{Path, PathBuf};

use nowait_cli::problem::Problem;
use serde::Serialize;
use slowdisk::{Entry, Op};

use super::child::Ended;

/// The figures whose ratios are taken.
pub const COMPARED: [&str; 3] = ["files_per_s", "seconds", "cpu_s"];

/// The process or processes of one turn, and the figures `more` of the area.
#[derive(Clone, Debug, Serialize)]
pub struct Turn<M> {
    seconds: f64,
    files_per_s: f64,
    cpu_s: f64,
    /// The reads of a slow disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    reads: Option<u64>,
    #[serde(flatten)]
    more: M,
}

impl<M> Turn<M> {
    /// The figures of a process that has worked on so many files.
    pub fn new(files: u64, ended: &Ended, reads: Option<u64>, more: M) -> Turn<M> {
        Turn {
            seconds: ended.seconds,
            files_per_s: files as f64 / ended.seconds.max(1e-9),
            cpu_s: ended.used.cpu(),
            reads,
            more,
        }
    }
}

/// The number of reads in the log of a slow disk.
pub fn reads(log: &[Entry]) -> u64 {
    log.iter().filter(|entry| entry.op == Op::Read).count() as u64
}

/// Checks that the caches can be dropped. `instead` tells a user without root what works.
pub fn check_root(instead: &str) -> Result<(), Problem> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(Problem::Usage(format!(
            "only root can make the kernel drop its caches: run it under sudo, or {instead}"
        ))),
    }
}

/// The program nowait: the one that the user names, the one beside this program, or the one in
/// PATH.
pub fn find_nowait(named: Option<&Path>) -> Result<PathBuf, Problem> {
    if let Some(path) = named {
        return path.canonicalize().map_err(|e| {
            Problem::Failed(format!(
                "--nowait {}: {e}; build it with cargo build --release -p nowait-cli",
                path.display()
            ))
        });
    }
    let here = std::env::current_exe().map_err(|e| Problem::of("cannot find this program", e))?;
    let beside = here.with_file_name("nowait");
    Ok(match beside.exists() {
        true => beside,
        false => "nowait".into(),
    })
}

/// The environment variable with the directory of the libraries of nowait.
pub const LIBRARIES: &str = "NOWAIT_LIBRARY_DIR";

/// The reason and remedy if there is no program nowait.
pub const NO_NOWAIT: &str = "the program nowait is neither in the directory of this program nor in PATH: build it \
                             (cargo build --release -p nowait-cli), and name it with --nowait";
