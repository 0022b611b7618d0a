//! `nowait doctor` reports what the kernel, the sandbox and a filesystem support, what each call
//! costs, and the backend and plans that the library chooses.
//!
//! The order of work: [`machine`] tries the kernel's and the sandbox's calls, [`test_file`] finds a
//! file for the checks, [`checks`] tries the filesystem with this file, [`costs`] measures,
//! [`decisions`] asks the library for its decisions, and [`report`] and [`page`] make the output.
//! All features are found by trying them. The kernel's release is shown but not used.

mod checks;
mod costs;
mod decisions;
mod fact;
mod machine;
mod progress;
mod report;
mod test_file;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use report::{BreakEven, CostTable, SEED_BREAK_EVEN};

use checks::Checks;
use decisions::Engines;
use progress::Progress;
use report::Report;
use test_file::TestFile;
use text::Style;

use crate::terminal::Terminal;

/// Reports what the kernel, the sandbox and a filesystem support, and what calls cost.
///
/// Tries every system call and flag that nowait can use, measures their costs, and shows the
/// choices of nowait: the backend (io_uring or threads), and the way in which it reads a file. The
/// checks use an unnamed temporary file of 512 pages in the directory PATH, or in the directory of
/// the file PATH. If no temporary file can be created, the checks read the file PATH itself; they
/// do not change it and do not evict it.
#[derive(clap::Args)]
#[command(
    after_long_help = r#"JSON (--json): one object. RESULT is {"ok": true|false|null, "why": string|null}. null for "ok" means not
tried. "why" is the reason; with true it is an additional note.
  {
    "doctor": 1,           version of this format
    "version",             of nowait
    "machine": {
      "release", "arch", "cpus", "page_size",
      "memlock", "nofile", soft limits; null: unlimited
      "io_uring_disabled"  the sysctl; null: this kernel has none
    },
    "kernel": {NAME: RESULT},
                           preadv2, pwritev2, cachestat, statx, openat2,
                           io_uring, io_uring_FEATURE, io_uring_op_NAME
    "filesystem": {
      "path", "name", "device",
      "tried_on",          null: nothing could be tried
      "why",               the reason for that
      "direct_alignment",  {"memory", "offset"} in bytes, or null
      NAME: RESULT         nowait_read, nowait_write, read_FLAG, write_FLAG,
                           eviction, cachestat, mincore, direct
    },
    "false_eof": {"tested", "false_ends", "why"},
                           numbers; null: not tested
    "costs_ns": {NAME: {"median", "p10", "p90"}},
                           nanoseconds of a call
    "not_measured": {NAME: why},
    "break_even",          hit rate above which a NOWAIT try costs less than
                           an immediate handoff
    "ask_first_break_even",
                           hit rate above which a NOWAIT try costs less than
                           a query of residency before it
    "seed_break_even",     0.3: the latter, as published in 2015
    "backend": {"name", "why"},
                           uring, threads or null
    "plan": {"eager", "strict", "why"}
                           for a read of 4 KiB; null: there is no file
  }
Later programs may add keys without changing the version.

Examples:
  nowait doctor                 the filesystem of the current directory
  nowait doctor /srv/db/data    how nowait reads this file
  nowait doctor --json | jq .backend

Environment:
  NOWAIT_BACKEND  uring or threads: use only this backend (read by every
                  program that uses nowait)
  NO_COLOR        if not empty: no colours

Exit status:
  0  success, also if features are missing
  1  failure
  2  wrong usage"#
)]
pub struct Args {
    /// A file or directory on the filesystem to examine
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let report = examine(args)?;
    let text = if args.json {
        let json = serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?;
        json + "\n"
    } else {
        let Terminal { colour, width, .. } = Terminal::look();
        report.text(Style { colour, width })
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // The reader may close the pipe early.
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write the report: {e}"))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Does all checks and measurements, in order.
fn examine(args: &Args) -> Result<Report, String> {
    let progress = Progress::start();
    progress.now("trying the kernel and the sandbox");
    let machine = machine::machine();
    let kernel = machine::kernel();

    progress.now("writing a temporary file");
    let test_file = TestFile::find(&args.path)?;
    progress.now("trying the filesystem");
    let checks = checks::all(&test_file);

    progress.now("measuring");
    let engines = Engines::start();
    let costs = costs::measure(&test_file, &checks, &engines);
    let (backend, plan) = decisions::decide(&engines, &test_file);

    Ok(Report::new(
        machine, kernel, &test_file, checks, costs, backend, plan,
    ))
}

/// The cost table's file and engines, ready for repeated measurements.
pub struct Bench {
    test_file: TestFile,
    checks: Checks,
    engines: Engines,
}

impl Bench {
    /// Finds a file for the measurements, as the verb does.
    pub fn prepare(path: &Path) -> Result<Bench, String> {
        let test_file = TestFile::find(path)?;
        Ok(Bench {
            checks: checks::all(&test_file),
            engines: Engines::start(),
            test_file,
        })
    }

    /// Measures the cost table, and computes the break-even hit rates.
    pub fn costs(&self) -> (CostTable, BreakEven) {
        costs::measure(&self.test_file, &self.checks, &self.engines)
    }
}
