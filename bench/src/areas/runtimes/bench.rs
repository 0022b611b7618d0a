//! The measurement: for each cell and each round, each peer once.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;
use serde_json::{Value, json};

use super::args::Run;
use super::cache;
use super::cell::Cell;
use super::file::{self, Scratch};
use super::peer::Peer;
use super::report::{self, Measured};
use super::turn::{Turn, WORKERS};
use crate::harness::contender::{Fit, available};
use crate::harness::files::check;
use crate::harness::machine::Machine;
use crate::harness::run::{INTERVAL, ORDER};

/// Measures all cells and prints the results.
pub fn run(args: &Run, stop: Stop) -> Result<ExitCode, Problem> {
    let cells = chosen(args).map_err(Problem::Failed)?;
    args.output.prepare()?;
    let mut notes = Vec::new();
    let programs = programs(args, &mut notes)?;
    file::make_missing(&args.file, args.size.0, &stop)?;
    let machine = Machine::look(&args.file)?;
    let mut measured = Vec::new();
    let mut progress = Progress::of_turns(cells.len() as u64 * u64::from(args.rounds.count()));
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
        measured.push(one?);
    }
    drop(progress);
    let mut run = report::run(machine, settings(args), &measured);
    run.interrupted = stop.asked();
    notes.into_iter().for_each(|note| run.note(note));
    args.output.finish(run)
}

fn settings(args: &Run) -> Value {
    json!({
        "about": format!(
            "{} of file, {} s a turn, rounds: {}, {WORKERS} worker threads",
            args.size, args.seconds, args.rounds.count()
        ),
        "size": args.size.0,
        "seconds": args.seconds,
        "rounds": args.rounds.count(),
        "seed": args.rounds.seed,
        "workers": WORKERS,
        "advice": "POSIX_FADV_RANDOM on every descriptor",
        "cache": cache::HOW,
        "order": ORDER,
        "interval": INTERVAL,
        "legend": "Medians over rounds; us: microseconds; CPU: processor time of one operation; tick: how \
                   late the event loop came to a timer; the last column: operations per second of nowait \
                   divided by those of the peer.",
    })
}

/// The cells whose names begin with one of --cells, in the order of all cells.
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

/// The peers that are available, each with the build of this program that it is in.
fn programs(args: &Run, notes: &mut Vec<String>) -> Result<Vec<(Peer, PathBuf)>, Problem> {
    let this = std::env::current_exe().map_err(|e| Problem::of("cannot find this program", e))?;
    let ring = args.ring_build.clone().unwrap_or_else(|| ring_build(&this));
    let fits = |peer| match peer {
        Peer::TokioFsRing if !ring.is_file() => {
            Fit::No("it needs another build of this program, which `make bench-tokio` makes".into())
        }
        _ => Fit::Yes,
    };
    let peers = available(&args.peers, &Peer::ALL, Peer::name, fits, notes)?;
    let program = |peer| match peer {
        Peer::TokioFsRing => ring.clone(),
        _ => this.clone(),
    };
    Ok(peers
        .into_iter()
        .map(|peer| (peer, program(peer)))
        .collect())
}

/// The place of the other build: target/ring/release/nowait-bench if this program is
/// target/release/nowait-bench.
fn ring_build(this: &Path) -> PathBuf {
    let target = this.ancestors().nth(2).unwrap_or(this);
    let below = this.strip_prefix(target).unwrap_or(this);
    target.join("ring").join(below)
}

/// All rounds of one cell. A peer that fails is left out, with a note.
fn measure(
    args: &Run,
    cell: Cell,
    programs: &[(Peer, PathBuf)],
    (progress, done): (&mut Progress, &mut u64),
    notes: &mut Vec<String>,
    stop: &Stop,
) -> Result<Measured, Problem> {
    let size = match cell.is_write() {
        true => cell.span(args.size.0),
        false => args.size.0,
    };
    let scratch = match cell.is_write() {
        true => Some(Scratch::beside(&args.file, size, stop)?),
        false => None,
    };
    let file = scratch.as_ref().map_or(&args.file, |scratch| &scratch.path);
    let mut peers: Vec<_> = programs
        .iter()
        .filter(|(peer, _)| peer.takes_part(&cell))
        .map(|(peer, program)| (*peer, program, Vec::new()))
        .collect();
    for round in 0..args.rounds.count() as usize {
        // Each round begins with the next peer.
        let first = round % peers.len().max(1);
        peers.rotate_left(first);
        let mut failed = Vec::new();
        for (peer, program, rounds) in &mut peers {
            let turn = Turn {
                peer: *peer,
                cell: cell.clone(),
                file: file.clone(),
                size: args.size.0,
                seconds: args.seconds,
                seed: args.rounds.seed_of(round),
            };
            cache::prepare(&turn).map_err(|e| Problem::of(file.display(), e))?;
            if stop.asked() {
                break;
            }
            let outcome = turn.run(program, stop);
            check(file, size)?;
            match outcome {
                Ok(Some(round)) => rounds.push(round),
                Ok(None) => break,
                Err(why) => {
                    notes.push(format!("{} in {}: {why}", peer.name(), cell.name));
                    failed.push(*peer);
                }
            }
        }
        peers.rotate_right(first);
        peers.retain(|(peer, ..)| !failed.contains(peer));
        if stop.asked() {
            break;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_build_is_in_the_folder_ring() {
        let this = Path::new("/target/release/nowait-bench");
        let other = Path::new("/target/ring/release/nowait-bench");
        assert_eq!(ring_build(this), other);
    }
}
