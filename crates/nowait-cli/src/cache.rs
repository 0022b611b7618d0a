//! `nowait cache` saves which ranges of files are in the page cache, and restores them later.
//!
//! ```text
//!  save:     paths ─► query page map ─► snapshot ─► temporary file ─► renamed
//!  restore:  snapshot ─► checked completely ─► entry by entry ─► read
//! ```

mod restore;
mod save;
pub mod snapshot;

use std::process::ExitCode;

use clap::Subcommand;

/// Saves which ranges of files are in the page cache, and restores them later.
#[derive(Debug, clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_long_help = "\
Examples:
  nowait cache save -o before /srv    before a reboot
  nowait cache restore before         after it

Exit status:
  See the pages of the two commands."
)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Save(save::Args),
    Restore(restore::Args),
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let outcome = match &args.verb {
        Verb::Save(args) => save::run(args),
        Verb::Restore(args) => restore::run(args),
    };
    Ok(outcome.unwrap_or_else(|problem| problem.report()))
}
