//! `nowait warm` reads the missing parts of files into the page cache, within a memory budget.

mod metadata;

use std::process::ExitCode;

use nowait_page_cache::{self as page_cache, Prefetcher, Request, SeenInodes, Stopped};

use crate::messages::Messages;
use crate::paths::{Kinds, Paths};
use crate::prefetch::{JSON_FORMAT, Limits, print, show};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::stop::Stop;

/// Reads the missing parts of files into the page cache, within a memory budget.
#[derive(Debug, clap::Args)]
#[command(after_help = format!(
    "{DETAILS}\n\nJSON (--json): one object.\n  {{\n    \"warm\": 1,             version of this format{JSON_FORMAT}\n\n{}\n\n{EXIT_STATUS}",
    metadata::JSON_FORMAT
))]
pub struct Args {
    #[command(flatten)]
    paths: Paths,

    #[command(flatten)]
    limits: Limits,

    /// Load inodes into the kernel's caches instead of data
    #[arg(long, conflicts_with_all = ["depth", "rate", "budget", "dry_run"])]
    metadata: bool,

    /// With --metadata: load extended attributes, too
    #[arg(long, requires = "metadata")]
    xattr: bool,
}

const DETAILS: &str = "\
Only ranges that are not cached are read. Holes are not read. The kernel does not report which pages of a
file are cached to users who neither own the file nor may write to it; such files are read completely. During the run, the program checks how much memory is
available and if the first files are still cached. It stops before new data evicts earlier data. At the
end it counts the cached bytes. The access times of your own files are not changed. A file under a
lease for writing (fcntl(2)) of another process is not read, because opening it would break the lease.

If standard error is a terminal, a run that takes longer than a second shows its progress. The sizes of the files are counted
meanwhile. After that, the progress has a percentage and the time that is left. It has none for --files0-from.

The pages stay in the page cache. `nowait run --keep-cache` runs a program that leaves no pages behind.";

const EXIT_STATUS: &str = "\
Examples:
  nowait warm data                   before the first requests come
  nowait warm --rate 50M data        at most 50 MiB per second
  nowait warm --dry-run data         how much is missing
  nowait warm --metadata /srv        inodes, no data

Exit status:
  0    all files are cached
  1    some files failed, or were not read because of the budget
  2    wrong usage
  130  interrupted; the results so far are printed";

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    Ok(warm(args).unwrap_or_else(|problem| problem.report()))
}

fn warm(args: &Args) -> Result<ExitCode, Problem> {
    if args.metadata {
        return metadata::warm(&args.paths, args.xattr, args.limits.json);
    }
    let limits = page_cache::Limits::from(&args.limits);
    // With few threads the engine comes first: the signals do without one if they have to.
    let engine = page_cache::engine(&limits)?;
    let stop = Stop::on_signals()?;
    let mut progress = Progress::of_unknown_bytes();
    let messages = Messages::beside(&progress);
    let seen = SeenInodes::new(args.paths.may_overlap());
    let mut show = |run| show(&mut progress, run);
    let mut prefetcher = Prefetcher::new(engine, limits, Some(seen), &messages, &mut show, &stop);
    if Progress::is_visible() {
        prefetcher.set_total(args.paths.total(Kinds::Regular));
    }
    // The summary reports a stop request.
    let _: Result<(), Stopped> = args
        .paths
        .visit(Kinds::Regular, &messages, &stop, &mut |file| {
            prefetcher.add(Request {
                file,
                selection: None,
            })
        });
    let summary = prefetcher.finish();
    drop(progress);
    print(&summary, "warm", args.limits.json, &messages)
}
