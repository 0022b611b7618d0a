//! `nowait cache restore` reads the ranges of a snapshot into the page cache.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::snapshot::{self, InvalidEntry, Snapshot};
use nowait_page_cache::{self as page_cache, Prefetcher, Total};

use crate::messages::Messages;
use crate::name::DisplayPath;
use crate::prefetch::{JSON_FORMAT, Limits, print, show};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::size::Size;
use crate::stop::Stop;

/// Reads the ranges of a snapshot into the page cache.
#[derive(Debug, clap::Args)]
#[command(after_help = format!(
    "{DETAILS}\n\n{}\n\nJSON (--json): one object.\n  {{\n    \"restore\": 1,          version of this format{JSON_FORMAT}\n\n{EXIT_STATUS}",
    snapshot::JSON_FORMAT
))]
pub struct Args {
    /// The snapshot. `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    limits: Limits,
}

const DETAILS: &str = "\
An incomplete snapshot or one of another version is refused before any file is read. A file whose inode
number, size or modification time differs from the snapshot is skipped.";

const EXIT_STATUS: &str = "\
Examples:
  nowait cache restore before               after the reboot
  nowait cache restore --dry-run before     how much is missing

Exit status:
  0    all ranges are cached again
  1    some files failed, were skipped, or were not read because of the
       budget
  2    wrong usage
  130  interrupted; the results so far are printed";

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    let limits = page_cache::Limits::from(&args.limits);
    let engine = page_cache::engine(&limits)?;
    let stop = Stop::on_signals()?;
    let name = if args.file.as_os_str() == "-" {
        "standard input".to_owned()
    } else {
        DisplayPath(&args.file).to_string()
    };
    let mut snapshot = Snapshot::check(open(&args.file, &name)?, name)?;
    let mut progress = Progress::of_unknown_bytes();
    let messages = Messages::beside(&progress);
    // A file with many ranges has several entries, so files that were seen before are not skipped.
    let mut show = |run| show(&mut progress, run);
    let mut prefetcher = Prefetcher::new(engine, limits, None, &messages, &mut show, &stop);
    prefetcher.set_total(Total::known(snapshot.bytes));
    snapshot.each(|entry| match entry {
        Ok(request) => prefetcher.add(request),
        Err(InvalidEntry { line, why }) => {
            prefetcher.skip();
            messages.failure(&args.file, format_args!("line {line} is skipped: {why}"));
            Ok(())
        }
    })?;
    let summary = prefetcher.finish();
    drop(progress);
    print(&summary, "restore", args.limits.json, &messages)
}

/// The largest snapshot in bytes that is read from a pipe. It is copied to a temporary file,
/// because it is read twice.
const MAX_PIPED: u64 = 256 << 20;

/// Opens the snapshot as a file that can be read twice.
fn open(file: &Path, name: &str) -> Result<File, Problem> {
    let failed = |e: io::Error| Problem::of(format_args!("cannot read {name}"), e);
    let input: Box<dyn Read> = if file.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        let opened = File::open(file).map_err(failed)?;
        let kind = opened.metadata().map_err(failed)?.file_type();
        if kind.is_file() {
            return Ok(opened);
        }
        if kind.is_dir() {
            return Err(Problem::Failed(format!("{name} is a directory")));
        }
        Box::new(opened)
    };
    let mut copy = tempfile::tempfile().map_err(failed)?;
    let copied = io::copy(&mut input.take(MAX_PIPED + 1), &mut copy).map_err(failed)?;
    if copied > MAX_PIPED {
        return Err(Problem::Failed(format!(
            "{name} is larger than {}, the limit for a pipe: use a regular file",
            Size(MAX_PIPED)
        )));
    }
    Ok(copy)
}
