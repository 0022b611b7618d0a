//! `nowait-bench runtimes`: nowait for tokio beside other ways to read a file.
//!
//! For each cell (`cell.rs`) and each round, each peer (`peers/`) runs once in a separate process
//! (`turn.rs` and `inside.rs`), after the page cache was put into the state of the cell (`cache.rs`). `report.rs` has the
//! results.

mod args;
mod bench;
mod cache;
mod cell;
mod file;
mod gate;
mod inside;
mod peer;
mod peers;
mod places;
mod report;
mod round;
mod turn;

use std::process::ExitCode;

use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;

pub use args::{AFTER, Run as Args};

/// Measures all cells and prints the results.
pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    bench::run(args, stop)
}

/// Runs the turn that standard input describes.
pub fn run_turn() -> Result<ExitCode, Problem> {
    inside::run().map_err(Problem::Failed)?;
    Ok(ExitCode::SUCCESS)
}
