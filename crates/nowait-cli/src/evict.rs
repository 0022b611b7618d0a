//! `nowait evict`: files out of the page cache, and for what stays, why.
//!
//! ```text
//!  Paths ─► evict (threads): count, flush?, FADV_DONTNEED, count again ─► Reasons ─► Report
//!                                                             Holders ───┘ who maps it
//! ```
//! The kernel takes the advice for clean pages that nobody uses. It starts to write dirty ones, and
//! leaves them, as it leaves pages that are on their way to the device, mapped by a process, locked,
//! or in use by itself. Which of these it was it does not say; the counts before and after and
//! `/proc/PID/maps` do. Advice for a part of a file would also leave large folios that reach beyond
//! that part; this is why it is given for whole files only.
//!
//! # The JSON shape, version 1 (keys may be added within it)
//! ```text
//! {
//!   "evict": 1,                       version of this shape
//!   "version": "0.1.0",               of nowait
//!   "dry_run": bool,                  true: "evicted" is what would be, and nothing was
//!   "files": [{                       those with something that stayed or is unknown; -v: all
//!     "path", "path_hex",             as in fincore
//!     "size",                         bytes, as is every size here
//!     "cached_bytes",                 before; null: unknown, as for all that follows
//!     "evicted_bytes", "stayed_bytes",
//!     "unknown",                      why nobody can say; null where somebody can
//!     "why": [{"reason": "dirty" | "writeback" | "mapped" | "memory" | "held" | "mixed",
//!              "bytes",
//!              "by": [{"pid", "command", "locked"}]}]   processes that map it
//!   }],
//!   "total": {"files", "cached_bytes", "evicted_bytes", "stayed_bytes", "stayed_files",
//!             "stayed": {REASON: bytes},
//!             "unknown": [{"why", "files", "size"}],
//!             "unseen_processes",     that may map what was "held": their maps are not ours to read;
//!                                     null: nobody had to look
//!             "failed"}
//! }
//! ```

mod act;
mod holders;
mod json;
mod reason;
mod report;

use std::process::ExitCode;
use std::sync::Mutex;

use crate::met::Met;
use crate::output::Output;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::remark::Remarks;
use crate::size::Size;
use crate::terminal::Terminal;
use crate::tree::Paths;

use act::{How, evict};
use holders::Holders;
use reason::Row;
use report::{Report, Totals};

/// Takes files out of the page cache, and says what stayed and why.
#[derive(clap::Args)]
#[command(after_long_help = "\
What stays, and why:
  dirty       changed and not yet written; --flush writes it first
  writeback   being written (the advice itself starts that); --flush waits for
              it
  mapped      mapped into the memory of processes, which are named; `locked` by
              mlock(2)
  memory      the file lies in memory (tmpfs): there is no other place for it
  held        none of these: in use by the kernel at this moment, read again
              meanwhile, or mapped by a process whose maps you may not read; try
              again, or as root
  mixed       any of these: here (without cachestat) they can't be told apart

JSON (--json): {\"evict\": 1, \"version\", \"dry_run\", \"files\": [{\"path\", \"path_hex\", \"size\",
\"cached_bytes\", \"evicted_bytes\", \"stayed_bytes\", \"unknown\", \"why\": [{\"reason\", \"bytes\", \"by\":
[{\"pid\", \"command\", \"locked\"}]}]}], \"total\": {\"files\", \"cached_bytes\", \"evicted_bytes\",
\"stayed_bytes\", \"stayed_files\", \"stayed\": {REASON: bytes}, \"unknown\": [{\"why\", \"files\",
\"size\"}], \"unseen_processes\", \"failed\"}}. Sizes are memory in bytes; null is unknown. path_hex, the
bytes of the path, is there only if they are not UTF-8. \"evict\" is the version of this shape; keys
may be added within it.

Exit status: 0 nothing stayed (with --dry-run: all could be looked at); 1 something stayed, or could
not be looked at, or nobody can say; 2 wrong usage.")]
pub struct Args {
    #[command(flatten)]
    paths: Paths,

    /// Write dirty pages to the device first (fdatasync(2) of each file that has some)
    #[arg(long)]
    flush: bool,

    /// Only say what would be evicted and what would stay
    #[arg(long, conflicts_with = "flush")]
    dry_run: bool,

    /// Show also files of which nothing stayed
    #[arg(short, long)]
    verbose: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Between two looks at the progress.
const STEP: u64 = 256;

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    Ok(take_out(args).unwrap_or_else(|problem| problem.report()))
}

fn take_out(args: &Args) -> Result<ExitCode, Problem> {
    let how = match (args.dry_run, args.flush) {
        (true, _) => How::Look,
        (false, flush) => How::Advise { flush },
    };
    let mut progress = Progress::of_files();
    let remarks = Remarks::beside(&progress);
    // Asked by the threads: of two names at once only one may count before and after.
    let met = Mutex::new(Met::new(&args.paths));
    let mut holders = Holders::default();
    let mut totals = Totals::default();
    let mut report = Report::begin(Output::new(Terminal::look()), args.json, args.dry_run)?;
    args.paths.look(
        &remarks,
        |found| evict(found, how, &met),
        |found, outcome| {
            let done = match outcome {
                Ok(Some(done)) => done,
                Ok(None) => return Ok(()),
                Err(why) => {
                    found.failed(&remarks, why);
                    return Ok(());
                }
            };
            let row = Row::new(found.path, &done, args.dry_run, &mut holders);
            totals.add(&row);
            if totals.files.is_multiple_of(STEP) {
                progress.at(totals.files, format!("{} evicted", Size(totals.evicted)));
            }
            if args.verbose || row.is_news() {
                remarks.aside(|| report.row(&row))?;
            }
            Ok::<(), Problem>(())
        },
    )?;
    drop(progress);
    report.end(&totals, holders.unseen(), remarks.failures())?;
    let stayed = totals.stayed > 0 && !args.dry_run;
    Ok(match stayed || !totals.unknown.0.is_empty() {
        true => ExitCode::from(1),
        false => remarks.exit_code(),
    })
}
