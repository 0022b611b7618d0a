//! `nowait-bench`: measures nowait beside the interfaces and libraries that programs use today.
//!
//! ```text
//! areas/       one module for each area: the page cache, directories, operations per second, …
//! contenders/  how each contender reads a file
//! chart        a chart of a report
//! compare      two runs of one area
//! container    another verb in the environment of a container
//! harness/     plans, rounds, cache states, ratios, tables, charts
//! report/      all areas as one page
//! ```

mod areas;
mod chart;
mod compare;
mod container;
mod contenders;
mod harness;
mod report;

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
    /// Draws a chart of a report as an SVG file
    #[command(after_help = chart::AFTER)]
    Chart(Deferred<chart::Args>),
    /// Compares two runs of one area; fails if a figure has regressed
    #[command(after_help = compare::AFTER)]
    Compare(Deferred<compare::Args>),
    /// Measures in the environment of a container: overlayfs, no io_uring, a quota of processors
    #[command(after_help = container::AFTER)]
    Container(Deferred<container::Args>),
    /// The verb within a container
    #[command(hide = true)]
    ContainerInside(Deferred<container::Inside>),
    /// Measures all areas and makes one page of the results
    #[command(after_help = report::AFTER)]
    Report(Deferred<report::Args>),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Area(area) => area.run(),
        Verb::Chart(args) => chart::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Container(args) => container::run(&args),
        Verb::ContainerInside(args) => container::run_inside(&args),
        Verb::Report(args) => report::run(&args),
    };
    outcome.unwrap_or_else(|problem| problem.report_as("nowait-bench"))
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
