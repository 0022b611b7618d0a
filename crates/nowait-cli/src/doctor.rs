//! `nowait doctor`: what kernel, sandbox and filesystem allow here, what each call costs, and what
//! the library makes of it.
//!
//! The order of work: [`machine`] asks kernel and sandbox, [`subject`] finds a file to try things
//! on, [`trial`] tries the filesystem with it, [`costs`] measures, [`verdict`] has the library
//! itself decide, [`report`] and [`page`] say it. Everything is learnt by trying; the kernel's release is shown
//! and never used.
//!
//! # The JSON shape, version 1
//! A *fact* is `{"ok": true | false | null, "why": string | null}`; `null` means "not tried";
//! with `true`, `why` is a remark.
//! ```text
//! {
//!   "doctor": 1,                      version of this shape; keys may be added within it
//!   "version": "0.1.0",               of nowait
//!   "machine": {"release", "arch", "cpus", "page_size",
//!               "memlock", "nofile",  soft limits, null: unlimited
//!               "io_uring_disabled"}, the sysctl, null: this kernel has none
//!   "kernel": {NAME: fact},           preadv2, pwritev2, cachestat, statx, openat2, io_uring,
//!                                     io_uring_single_issuer, io_uring_sqpoll, io_uring_iopoll,
//!                                     io_uring_hybrid_iopoll, io_uring_registered_{ring, files,
//!                                     buffers}, io_uring_min_wait, io_uring_iowq_limits,
//!                                     io_uring_links, …, io_uring_op_read, …
//!   "filesystem": {"path", "name", "device",
//!                  "tried_on",        null: nothing could be tried, "why" says why
//!                  "why",
//!                  "direct_alignment": {"memory", "offset"} | null,   bytes
//!                  NAME: fact},       nowait_read, nowait_write, read_hipri, write_dsync, …,
//!                                     eviction, cachestat, mincore, direct
//!   "false_eof": {"tested", "false_ends", "why"},   numbers are null where not tested
//!   "costs_ns": {NAME: {"median", "p10", "p90"}},
//!   "not_measured": {NAME: why},
//!   "break_even": f | null,           hit rate from which trying beats handing off at once
//!   "ask_first_break_even": f | null, hit rate from which trying beats asking for residency first
//!   "seed_break_even": 0.3,           the latter, on the kernel list in 2015
//!   "backend": {"name": "uring" | "threads" | null, "why"},
//!   "plan": {"eager", "strict", "why"}   of a 4 KiB read; null where there is no file to ask about
//! }
//! ```

mod costs;
mod machine;
mod page;
mod progress;
mod report;
mod subject;
mod trial;
mod verdict;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use report::{BreakEven, CostTable, SEED_BREAK_EVEN};

use page::Style;
use progress::Progress;
use report::Report;
use subject::Subject;
use trial::Trials;
use verdict::Engines;

use crate::terminal::Terminal;

/// What kernel, sandbox and filesystem allow here, what calls cost, and what follows.
///
/// Tries every call and flag that nowait may use, on a temporary file of 512 pages made beside
/// PATH (or in it), which is never visible by a name for longer than its creation. Where none can
/// be made, a readable PATH is tried itself, without changing or evicting it.
#[derive(clap::Args)]
#[command(after_long_help = "\
JSON (--json): {\"doctor\": 1, \"version\", \"machine\", \"kernel\", \"filesystem\", \"false_eof\",
\"costs_ns\", \"not_measured\", \"break_even\", \"ask_first_break_even\", \"seed_break_even\",
\"backend\", \"plan\"}. Answers are {\"ok\": true|false|null, \"why\": string|null}, null where
something was not tried; \"why\" is the reason, or a remark on a true. Costs are {\"median\",
\"p10\", \"p90\"} in nanoseconds. \"doctor\" is the version of this shape; keys may be added
within it.

Environment:
  NOWAIT_BACKEND  uring or threads: insists on it, as for every nowait program
  NO_COLOR        no colours

Exit status: 0 done, whatever was found; 1 failed; 2 wrong usage.")]
pub struct Args {
    /// A file or directory on the filesystem in question
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
        report.text(Style {
            colour: Terminal::look().colour,
        })
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // Whoever closed the pipe has read enough.
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write the report: {e}"))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// All of it, in order.
fn examine(args: &Args) -> Result<Report, String> {
    let progress = Progress::start();
    progress.now("looking at kernel and sandbox");
    let machine = machine::machine();
    let kernel = machine::kernel();

    progress.now("writing a temporary file");
    let subject = Subject::find(&args.path)?;
    progress.now("trying the filesystem");
    let trials = trial::all(&subject);

    progress.now("measuring");
    let engines = Engines::start();
    let costs = costs::measure(&subject, &trials, &engines);
    let (backend, plan) = verdict::decide(&engines, &subject);

    Ok(Report::new(
        machine, kernel, &subject, trials, costs, backend, plan,
    ))
}

/// What the table of costs needs, ready to be measured again and again.
pub struct Bench {
    subject: Subject,
    trials: Trials,
    engines: Engines,
}

impl Bench {
    /// Finds a file to measure with, as the verb does.
    pub fn prepare(path: &Path) -> Result<Bench, String> {
        let subject = Subject::find(path)?;
        Ok(Bench {
            trials: trial::all(&subject),
            engines: Engines::start(),
            subject,
        })
    }

    /// The table, and what follows from it.
    pub fn costs(&self) -> (CostTable, BreakEven) {
        costs::measure(&self.subject, &self.trials, &self.engines)
    }
}
