//! `nowait cache restore`: brings back what a snapshot says was cached.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::snapshot::{Bad, Snapshot};
use crate::bring::{Bringer, Limits, SHAPE};
use crate::name::Shown;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::remark::Remarks;
use crate::size::Size;
use crate::stop::Stop;

/// Brings back exactly the ranges that a snapshot says were cached.
#[derive(Debug, clap::Args)]
#[command(after_help = format!(
    "{AFTER}\n\n{}\n\nJSON (--json): {{\"restore\": 1, {SHAPE}\n\n{CODES}",
    super::SHAPE
))]
pub struct Args {
    /// The snapshot; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    limits: Limits,
}

const AFTER: &str = "\
A snapshot that is not whole, or is of another version, is refused before anything is read. A file
that is not the one that was noted, or was changed since (inode, size, modification time), is skipped.";

const CODES: &str = "\
Exit codes: 0 all is cached again, 1 something was skipped, left out or could not be read, 2 usage,
130 interrupted (what was done is printed).";

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    let stop = Stop::on_signals()?;
    let name = if args.file.as_os_str() == "-" {
        "standard input".to_owned()
    } else {
        Shown(&args.file).to_string()
    };
    let mut snapshot = Snapshot::check(open(&args.file, &name)?, name)?;
    let mut progress = Progress::of_files();
    let remarks = Remarks::beside(&progress);
    // A file with many ranges has several entries: to be met again is no reason to leave one out.
    let mut bringer = Bringer::new(args.limits.clone(), None, &remarks, &mut progress, &stop)?;
    snapshot.each(|entry| match entry {
        Ok(wish) => bringer.take(wish),
        Err(Bad { line, why }) => {
            bringer.skip();
            remarks.failure(&args.file, format_args!("line {line} is left out: {why}"));
            Ok(())
        }
    })?;
    let summary = bringer.finish();
    drop(progress);
    summary.print("restore", args.limits.json, &remarks)
}

/// More than this is not taken from a pipe: it has to be kept somewhere, to be read twice.
const MOST_PIPED: u64 = 256 << 20;

/// The snapshot as a file that can be read twice.
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
    let copied = io::copy(&mut input.take(MOST_PIPED + 1), &mut copy).map_err(failed)?;
    if copied > MOST_PIPED {
        return Err(Problem::Failed(format!(
            "{name} has more than the {} that are taken from a pipe: put it into a file",
            Size(MOST_PIPED)
        )));
    }
    Ok(copy)
}
