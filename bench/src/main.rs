//! `nowait-bench`: measures nowait beside the interfaces and libraries that programs use today.
//!
//! ```text
//! areas/       one module for each area: the page cache, directories, operations per second, …
//! contenders/  how each contender reads a file
//! harness/     plans, rounds, cache states, ratios, charts, reports
//! ```

mod areas;
mod contenders;
mod harness;

use std::process::ExitCode;

use clap::Parser;

/// Measures nowait beside the interfaces and libraries that programs use today.
#[derive(Parser)]
#[command(name = "nowait-bench", version, max_term_width = 100, after_help = areas::AFTER)]
struct Cli {
    #[command(subcommand)]
    area: areas::Area,
}

fn main() -> ExitCode {
    let outcome = Cli::parse().area.run();
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
