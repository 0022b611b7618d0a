//! A whole bench: for each cell, for each round, each peer once.

use std::io::IsTerminal;
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::areas::runtimes::args::Run;
use crate::areas::runtimes::cache;
use crate::areas::runtimes::cell::Cell;
use crate::areas::runtimes::file::{self, Scratch};
use crate::areas::runtimes::machine::Machine;
use crate::areas::runtimes::peer::Peer;
use crate::areas::runtimes::plot;
use crate::areas::runtimes::report::{Measured, Report};
use crate::areas::runtimes::turn::Turn;

/// Measures, prints, draws.
///
/// # Errors
/// What is wrong, and what to do.
pub fn run(args: &Run) -> Result<(), String> {
    let cells = chosen(args)?;
    let mut notes = Vec::new();
    let programs = programs(args, &mut notes)?;
    file::make(&args.file, args.size).map_err(|e| format!("{}: {e}", args.file.display()))?;
    if let Some(directory) = &args.svg {
        std::fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    }
    let machine = Machine::look(&args.file)?;
    let mut measured = Vec::new();
    let progress = progress(cells.len() as u64 * u64::from(args.rounds));
    for cell in cells {
        measured.push(measure(args, cell, &programs, &progress, &mut notes)?);
    }
    progress.finish_and_clear();
    let report = Report::new(args, machine, measured, notes);
    if let Some(directory) = &args.svg {
        plot::draw(&report, directory)?;
    }
    report.print(args.json)
}

/// The cells that were asked for, in their own order.
fn chosen(args: &Run) -> Result<Vec<Cell>, String> {
    let all = Cell::all();
    let names = || {
        let names: Vec<&str> = all.iter().map(|cell| cell.name.as_str()).collect();
        names.join(" ")
    };
    for prefix in &args.cells {
        if !all.iter().any(|cell| cell.name.starts_with(prefix)) {
            return Err(format!(
                "no cell is called {prefix}; there are: {}",
                names()
            ));
        }
    }
    let asked = |cell: &Cell| {
        args.cells
            .iter()
            .any(|prefix| cell.name.starts_with(prefix))
    };
    Ok(all.iter().filter(|cell| asked(cell)).cloned().collect())
}

/// Who takes part, and which build of this program each is in.
fn programs(args: &Run, notes: &mut Vec<String>) -> Result<Vec<(Peer, PathBuf)>, String> {
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let ring = match &args.ring_build {
        Some(program) => program.clone(),
        // target/release/nowait-bench, and target/ring/release/nowait-bench.
        None => {
            let mut place = this.clone();
            let names: Vec<_> = (0..2)
                .filter_map(|_| {
                    let name = place.file_name().map(PathBuf::from);
                    place.pop();
                    name
                })
                .collect();
            names
                .iter()
                .rev()
                .fold(place.join("ring"), |path, name| path.join(name))
        }
    };
    let mut all = Vec::new();
    for peer in Peer::ALL {
        match peer {
            _ if !args.peers.contains(&peer) => {}
            Peer::TokioFsRing if ring.is_file() => all.push((peer, ring.clone())),
            Peer::TokioFsRing => notes.push(
                "tokio-fs-ring is left out: it needs a build of its own, which `make bench-tokio` makes".into(),
            ),
            _ => all.push((peer, this.clone())),
        }
    }
    Ok(all)
}

/// All rounds of one cell. A peer that fails is out, and it is said.
fn measure(
    args: &Run,
    cell: Cell,
    programs: &[(Peer, PathBuf)],
    progress: &ProgressBar,
    notes: &mut Vec<String>,
) -> Result<Measured, String> {
    progress.set_message(cell.name.clone());
    let scratch = match cell.is_write() {
        true => Some(
            Scratch::beside(&args.file, cell.span(args.size))
                .map_err(|e| format!("{}.write: {e}", args.file.display()))?,
        ),
        false => None,
    };
    let file = scratch.as_ref().map_or(&args.file, |scratch| &scratch.path);
    let mut peers: Vec<_> = programs
        .iter()
        .filter(|(peer, _)| peer.takes_part(&cell))
        .map(|(peer, program)| (*peer, program, Vec::new()))
        .collect();
    for round in 0..args.rounds as usize {
        // Each round begins with the next one.
        let first = round % peers.len().max(1);
        peers.rotate_left(first);
        let mut failed = Vec::new();
        for (peer, program, rounds) in &mut peers {
            let turn = Turn {
                peer: *peer,
                cell: cell.clone(),
                file: file.clone(),
                size: args.size,
                seconds: args.seconds,
                seed: round as u64,
            };
            cache::prepare(&turn).map_err(|e| format!("{}: {e}", file.display()))?;
            match turn.run(program) {
                Ok(round) => rounds.push(round),
                Err(why) => {
                    notes.push(why);
                    failed.push(*peer);
                }
            }
        }
        peers.rotate_right(first);
        peers.retain(|(peer, ..)| !failed.contains(peer));
        progress.inc(1);
    }
    Ok(Measured {
        cell,
        peers: peers
            .into_iter()
            .map(|(peer, _, rounds)| (peer, rounds))
            .collect(),
    })
}

fn progress(turns: u64) -> ProgressBar {
    let target = match std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr_with_hz(2),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} rounds, {msg}, {eta} left");
    ProgressBar::with_draw_target(Some(turns), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
