//! `nowait cache`: notes which ranges of files are cached, and brings them back later.
//!
//! ```text
//!  save:     paths ─► look: page map ─► snapshot ─► temporary file ─► renamed
//!  restore:  snapshot ─► checked whole ─► entry by entry ─► bring
//! ```

mod restore;
mod save;
pub mod snapshot;

use std::process::ExitCode;

use clap::Subcommand;

/// Notes which ranges of files are in the page cache, and brings them back later.
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

/// What a snapshot looks like, for `--help`.
const SHAPE: &str = r#"A snapshot is JSON, one value a line; keys may be added within a version:
  {"format": "nowait cache", "version": 1}
  {"path": "/absolute", "size": BYTES, "mtime": [SECONDS, NANOSECONDS],
   "inode": N, "ranges": [[FROM, TO], ...]}
  {"end": {"files": LINES}}
Sizes and ranges are in bytes; ranges are in order, TO is not included, and at most 65536 are on a
line. LINES is how many such lines there were: without that one, a snapshot is cut off. A path that is not UTF-8 is in "path_hex" as well, byte by byte, and "path" is only for reading."#;
