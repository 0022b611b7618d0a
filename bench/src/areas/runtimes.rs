//! nowait for tokio beside what else one could read a file with: peers take turns on one file.
//!
//! `run` is the whole bench: for each cell, for each round, each peer once, in a process of its own
//! (`turn.rs`), after the page cache was put into the cell's state (`cache.rs`). Who reads how is in
//! `peers/`, one file each; `cell.rs` says what is measured, `report.rs` what comes of it.

mod args;
mod bench;
mod cache;
mod cell;
mod file;
mod gate;
mod peer;
mod peers;
mod places;
mod report;
mod round;
mod tape;
mod tick;
mod turn;

use std::process::ExitCode;

use nowait_cli::problem::Problem;

pub use args::Run as Args;

/// Measures all cells and prints the results.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    bench::run(args)
}

/// Takes the turn that standard input describes.
pub fn run_turn() -> Result<ExitCode, Problem> {
    turn::take().map_err(Problem::Failed)?;
    Ok(ExitCode::SUCCESS)
}
