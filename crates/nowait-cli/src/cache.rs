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
#[command(subcommand_required = true, arg_required_else_help = true)]
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

/// The description of a snapshot's format for `--help`.
const JSON_FORMAT: &str = r#"A snapshot is JSON, one value per line:
  {"format": "nowait cache", "version": 1}
  {"path": "/absolute", "size": BYTES, "mtime": [SECONDS, NANOSECONDS],
   "inode": N, "ranges": [[FROM, TO], ...]}
  {"end": {"files": LINES}}
There is a line with "path" for each file. Sizes and ranges are in bytes. Ranges are in order, and TO is
exclusive. A line has at most 65536 ranges; a file with more ranges has several lines. LINES is the
number of lines with "path". A snapshot without the "end" line is incomplete. For a path that is not
UTF-8, "path_hex" has its bytes in hexadecimal, and "path" is only for display. Later programs may add
keys without changing the version."#;
