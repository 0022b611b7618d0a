//! `nowait warm`: brings what is missing of files into the page cache, and no more than stays there.

mod metadata;

use std::process::ExitCode;

use crate::bring::{Bringer, Limits, SHAPE, Stopped, Wish};
use crate::met::Met;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::remark::Remarks;
use crate::stop::Stop;
use crate::tree::Paths;

/// Brings files into the page cache: only what is missing, and no more than stays there.
#[derive(Debug, clap::Args)]
#[command(after_help = format!(
    "{AFTER}\n\nJSON (--json): {{\"warm\": 1, {SHAPE}\n\nWith --metadata: {}\n\n{CODES}",
    metadata::SHAPE
))]
pub struct Args {
    #[command(flatten)]
    paths: Paths,

    #[command(flatten)]
    limits: Limits,

    /// Bring inodes into the caches, and no data
    #[arg(long, conflicts_with_all = ["depth", "rate", "budget", "dry_run"])]
    metadata: bool,

    /// With --metadata: extended attributes, too
    #[arg(long, requires = "metadata")]
    xattr: bool,
}

const AFTER: &str = "\
Only what is missing is read: cached ranges and holes are not. Where nobody can say what is cached
(files of others that one may not write), all is read. While it works it looks at whether what it
brought first is still there and how much memory is left, and stops before it evicts itself. In the
end it counts what is cached. Access times stay as they are for files that one owns.";

const CODES: &str = "\
Exit codes: 0 all is cached, 1 something could not be read or was left out, 2 usage, 130 interrupted
(what was done is printed).";

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    Ok(warm(args).unwrap_or_else(|problem| problem.report()))
}

fn warm(args: &Args) -> Result<ExitCode, Problem> {
    if args.metadata {
        return metadata::warm(&args.paths, args.xattr, args.limits.json);
    }
    let stop = Stop::on_signals()?;
    let mut progress = Progress::of_files();
    let remarks = Remarks::beside(&progress);
    let met = Met::new(&args.paths);
    let mut bringer = Bringer::new(
        args.limits.clone(),
        Some(met),
        &remarks,
        &mut progress,
        &stop,
    )?;
    // An end that somebody wants is in the summary.
    let _: Result<(), Stopped> = args
        .paths
        .visit(&remarks, |found| bringer.take(Wish { found, only: None }));
    let summary = bringer.finish();
    drop(progress);
    summary.print("warm", args.limits.json, &remarks)
}
