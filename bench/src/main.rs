//! `nowait-bench`: measures nowait beside the interfaces and libraries that programs use today.
//!
//! ```text
//! areas/       one module for each area: the page cache, directories, operations per second, …
//! contenders/  how each contender reads a file
//! compare      two runs of one area
//! harness/     plans, rounds, cache states, ratios, charts, reports
//! ```

mod areas;
mod compare;
mod contenders;
mod harness;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nowait_cli::deferred::Deferred;

/// Measures nowait beside the interfaces and libraries that programs use today.
#[derive(Parser)]
#[command(name = "nowait-bench", version, max_term_width = 100, after_help = areas::AFTER)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[command(flatten)]
    Area(areas::Area),
    /// Compares two runs of one area; fails if a figure has regressed
    #[command(after_help = compare::AFTER)]
    Compare(Deferred<compare::Args>),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Area(area) => area.run(),
        Verb::Compare(args) => compare::run(&args),
    };
    outcome.unwrap_or_else(|problem| problem.report())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_valid() {
        let mut command = Cli::command();
        command.build();
        command.debug_assert();
    }
}
