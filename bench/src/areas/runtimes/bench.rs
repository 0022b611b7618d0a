//! A whole bench: for each cell, for each round, each peer once.

use std::path::PathBuf;
use std::process::ExitCode;

use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use serde_json::{Map, Value, json};

use super::args::Run;
use super::cache;
use super::cell::Cell;
use super::file::{self, Scratch};
use super::peer::Peer;
use super::report::{self, Measured};
use super::turn::{Turn, WORKERS};
use crate::harness::machine::Machine;

/// Measures all cells and prints the results.
pub fn run(args: &Run) -> Result<ExitCode, Problem> {
    let cells = chosen(args).map_err(Problem::Failed)?;
    let mut notes = Vec::new();
    let programs = programs(args, &mut notes).map_err(Problem::Failed)?;
    file::make(&args.file, args.size).map_err(|e| Problem::of(args.file.display(), e))?;
    args.output.prepare()?;
    let stop = Stop::on_signals()?;
    let machine = Machine::look(&args.file)?;
    let mut measured = Vec::new();
    let mut progress = Progress::of_turns(cells.len() as u64 * u64::from(args.rounds));
    let mut done = 0;
    for cell in cells {
        if stop.asked() {
            break;
        }
        let one = measure(
            args,
            cell,
            &programs,
            (&mut progress, &mut done),
            &mut notes,
            &stop,
        );
        measured.push(one.map_err(Problem::Failed)?);
    }
    drop(progress);
    let mut run = report::run(machine, settings(args), &measured);
    run.interrupted = stop.asked();
    notes.into_iter().for_each(|note| run.note(note));
    args.output.finish(run)
}

fn settings(args: &Run) -> Map<String, Value> {
    let settings = json!({
        "about": format!(
            "{} of file, {} s a turn, rounds: {}, {WORKERS} worker threads",
            Size(args.size), args.seconds, args.rounds
        ),
        "size": args.size,
        "seconds": args.seconds,
        "rounds": args.rounds,
        "workers": WORKERS,
        "advice": "POSIX_FADV_RANDOM on every descriptor",
        "cache": cache::HOW,
        "order": "contenders take turns within a round; each round begins with the next one",
        "interval": "order statistics of the paired ratios (sign test); see coverage",
        "legend": "Medians over rounds; us: microseconds; CPU: processor time of one operation; tick: how \
                   late the event loop came to a timer; the last column: operations per second of nowait \
                   divided by those of the peer.",
    });
    match settings {
        Value::Object(settings) => settings,
        _ => Map::new(),
    }
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
    (progress, done): (&mut Progress, &mut u64),
    notes: &mut Vec<String>,
    stop: &Stop,
) -> Result<Measured, String> {
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
        if stop.asked() {
            break;
        }
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
        *done += 1;
        progress.at(*done, cell.name.clone());
    }
    Ok(Measured {
        cell,
        peers: peers
            .into_iter()
            .map(|(peer, _, rounds)| (peer, rounds))
            .collect(),
    })
}
