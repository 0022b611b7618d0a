//! The process of one turn: it reads the turn as JSON on standard input, and prints the round on
//! standard output.

use std::io::{self, Write};

use super::gate::Gate;
use super::peers;
use super::turn::Turn;

/// Runs the turn that standard input describes.
pub fn run() -> Result<(), String> {
    let turn: Turn = serde_json::from_reader(io::stdin().lock()).map_err(|e| e.to_string())?;
    // Some peers open a file for each task.
    let _ = rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit {
            current: Some(8192),
            ..rustix::process::getrlimit(rustix::process::Resource::Nofile)
        },
    );
    let gate = Gate::of(turn);
    peers::work(gate).map_err(|e| e.to_string())?;
    let round = gate.round().map_err(|e| e.to_string())?;
    let text = serde_json::to_string(&round).map_err(|e| e.to_string())?;
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|e| e.to_string())
}
