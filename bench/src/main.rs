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
mod machine;
mod peer;
mod peers;
mod places;
mod plot;
mod ratio;
mod report;
mod round;
#[path = "../../crates/nowait-cli/src/bench/sign_test.rs"]
mod sign_test;
mod tape;
mod tick;
mod turn;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let done = match args::Command::parse().verb {
        Some(args::Verb::Turn) => turn::take(),
        None => bench::run(&args::Command::parse().run),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nowait-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
