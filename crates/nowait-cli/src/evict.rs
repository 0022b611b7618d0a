//! `nowait evict` removes files from the page cache, and reports why pages stay.

mod json;
mod report;

use std::process::ExitCode;

use nowait_page_cache::{Action, MappingProcesses, SeenInodes, evict_all};

use crate::messages::Messages;
use crate::output::Output;
use crate::paths::{Kinds, Paths};
use crate::problem::{INTERRUPTED, Problem};
use crate::progress::Progress;
use crate::size::Size;
use crate::stop::Stop;
use crate::terminal::Terminal;

use report::Report;

/// Removes files from the page cache, and reports what stayed and why.
#[derive(clap::Args)]
#[command(
    after_long_help = r#"Evicting uses posix_fadvise(2) with POSIX_FADV_DONTNEED for whole files. Pages
that other programs have cached go, too. A file under a lease for writing is evicted through
its holder's descriptor, as in nowait-fincore(1). With --flush, or if that is not permitted, it is
reported as a failure. `nowait run --keep-cache` runs a program
and evicts only the pages that the program has added.

Reasons why pages stay:
  dirty       changed and not yet written; --flush writes them first
  writeback   being written (evicting starts this for dirty pages); --flush
              waits for it
  mapped      mapped by the named processes; `locked`: with mlock(2)
  memory      the filesystem stores its files in memory (tmpfs)
  held        none of the above: in use by the kernel, read again meanwhile,
              or mapped by a process whose maps you may not read; try again,
              or run nowait as root
  mixed       any of the above: without cachestat(2) they cannot be told apart

JSON (--json): one object. Sizes are in bytes. null means unknown.
  {
    "evict": 1,            version of this format
    "version",             of nowait
    "dry_run",             true: nothing was evicted; these are predictions
    "files": [{            files with pages that stayed or are unknown; with
                           -v all files
      "path",              bytes that are not UTF-8 are replaced
      "path_hex",          bytes of the path in hexadecimal, only if it is not
                           UTF-8
      "size",
      "cached_bytes",      before
      "evicted_bytes", "stayed_bytes",
      "unknown",           reason if residency is unknown, otherwise null
      "why": [{
        "reason",          one of the list above
        "bytes",
        "by": [{"pid", "command", "locked"}]
      }]
    }],
    "total": {
      "files", "cached_bytes", "evicted_bytes", "stayed_bytes",
      "stayed_files",
      "stayed",            bytes for each reason
      "unknown": [{"why", "files", "size"}],
      "unreadable_processes",
                           processes whose maps may not be read; they may
                           map "held" pages; null: no maps had to be read
      "failed",            failures reported on standard error
      "interrupted"        true: the rest was not processed
    }
  }
A sum of 2^64 bytes or more is 18446744073709551615. Later programs may add keys without
changing the version.

Examples:
  nowait evict /var/backups          after a backup
  nowait evict --flush data          writes dirty pages first
  nowait evict --dry-run data        what would stay, and why

Exit status:
  0    no pages stayed (with --dry-run: all files could be examined)
  1    pages stayed, some files failed, or it is unknown how much of some
       files is cached
  2    wrong usage
  130  interrupted; the results so far are printed"#
)]
pub struct Args {
    #[command(flatten)]
    paths: Paths,

    /// Write dirty pages to the device first, with fdatasync(2) for each file that has some
    #[arg(long)]
    flush: bool,

    /// Evict nothing; print what would be evicted and what would stay
    #[arg(long, conflicts_with = "flush")]
    dry_run: bool,

    /// Show also the files that were evicted completely
    #[arg(short, long)]
    verbose: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The progress is updated after this many files.
const STEP: u64 = 256;

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    Ok(evict(args).unwrap_or_else(|problem| problem.report()))
}

fn evict(args: &Args) -> Result<ExitCode, Problem> {
    let action = match (args.dry_run, args.flush) {
        (true, _) => Action::Count,
        (false, flush) => Action::Evict { flush },
    };
    let stop = Stop::on_signals()?;
    let mut progress = Progress::of_files();
    let messages = Messages::beside(&progress);
    let seen = SeenInodes::new(args.paths.may_overlap());
    let mut processes = MappingProcesses::default();
    let mut report = Report::begin(Output::new(Terminal::look()), args.json, args.dry_run)?;
    let totals = evict_all(
        |each| args.paths.visit(Kinds::Regular, &messages, &stop, each),
        action,
        seen,
        &messages,
        &mut processes,
        |row, totals| {
            if totals.files.is_multiple_of(STEP) {
                progress.at(totals.files, format!("{} evicted", Size(totals.evicted)));
            }
            if args.verbose || row.is_incomplete() {
                messages.without_progress(|| report.row(row))?;
            }
            Ok::<(), Problem>(())
        },
    )?;
    drop(progress);
    report.end(
        &totals,
        processes.unreadable(),
        messages.failures(),
        stop.asked(),
    )?;
    if stop.asked() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let stayed = totals.stayed > 0 && !args.dry_run;
    Ok(match stayed || !totals.unknown.0.is_empty() {
        true => ExitCode::from(1),
        false => messages.exit_code(),
    })
}
