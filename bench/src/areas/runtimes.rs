//! `nowait-bench runtimes`: nowait for tokio beside other ways to read a file.
//!
//! For each round and each cell (`cell.rs`) each peer (`peers/`) runs once in a separate process
//! (`turn.rs`), after the page cache was put into the state of the cell
//! (`cache.rs`). `report.rs` has the results.

mod cache;
mod cell;
mod file;
mod gate;
mod peer;
mod peers;
mod places;
mod report;
mod turn;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::harness::bench::{Bench, Group};
use crate::harness::contender::{Fit, Word};
use crate::harness::files::{Files, check};
use crate::harness::machine::Machine;
use crate::harness::output::Output;
use crate::harness::settings::Rounds;
use cell::Cell;
use file::Scratch;
use gate::Gate;
use peer::Peer;
use turn::{Turn, WORKERS};

/// nowait for tokio beside tokio::fs, tokio-uring, compio and spawn_blocking
///
/// Each cell is one kind of work. In each round of a cell every contender does it once, in a
/// separate process, on the same file, at the same places, with the same advice (POSIX_FADV_RANDOM)
/// and with the page cache in the same state. Another task of the same runtime waits for a timer
/// that fires every millisecond. Its lateness shows how long the event loop was blocked.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("rounds", |a| a.default_value("9")))]
pub struct Args {
    /// The file to read. A missing file is made and kept. Writes go to FILE.write, which is removed
    /// at the end
    #[arg(long, value_name = "FILE", default_value = "target/bench.dat")]
    file: PathBuf,

    /// The size of a file that is made, and the part that is read of an existing one
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    size: Size,

    #[command(flatten)]
    rounds: Rounds,

    /// How long each contender runs in each round, but for cells of mixed hit rates, which make a
    /// fixed number of reads
    #[arg(long, value_name = "S", default_value_t = 0.2, value_parser = seconds)]
    seconds: f64,

    /// The cells to measure: names, or the beginnings of names. An unknown name prints all names
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_values = ["cached", "cold", "mixed", "write"])]
    cells: Vec<String>,

    /// The contenders [default: all that are available]
    #[arg(long, value_enum, value_name = "NAME,…", value_delimiter = ',')]
    peers: Vec<Peer>,

    #[command(flatten)]
    output: Output,

    /// A build of this program with RUSTFLAGS="--cfg tokio_unstable" and --features tokio-ring,
    /// which tokio-fs-ring needs [default: the one that `make bench-tokio` makes]
    #[arg(long, value_name = "PROGRAM")]
    ring_build: Option<PathBuf>,
}

pub const AFTER: &str = "\
Contenders take turns within each round. Ratios are taken within rounds. `tick` is the lateness of the event
loop for its timer. Ctrl-C prints what was measured; a second one ends the program at once.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameters \"work\", \"block\" and
\"tasks\". A round has lat_us and tick_us {p50 … max}; tick_us is null without an event loop.";

/// A size with room for the cells of large blocks.
fn size(text: &str) -> Result<Size, String> {
    match text.parse()? {
        Size(..LEAST) => Err(format!("give at least {}", Size(LEAST))),
        size => Ok(size),
    }
}

/// The least size of the file.
const LEAST: u64 = 4 << 20;

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: Result<f64, _> = text.parse();
    seconds
        .ok()
        .filter(|s| (0.001..=60.0).contains(s))
        .ok_or_else(|| "give 0.001 to 60 seconds".into())
}

/// Runs the turn that standard input describes as JSON, and prints its round.
pub fn run_turn() -> Result<ExitCode, Problem> {
    let failed = |e: io::Error| Problem::Failed(e.to_string());
    let turn: Turn = serde_json::from_reader(io::stdin().lock()).map_err(|e| failed(e.into()))?;
    // Some peers open a file for each task.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(8192),
            ..getrlimit(Resource::Nofile)
        },
    );
    let gate = Gate::of(turn);
    peers::work(gate).map_err(failed)?;
    let round = gate.round().map_err(failed)?;
    serde_json::to_writer(io::stdout(), &round).map_err(|e| failed(e.into()))?;
    Ok(ExitCode::SUCCESS)
}

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let cells = chosen(args).map_err(Problem::Failed)?;
    let bench = Bench::new("runtimes", &args.output, args.rounds.count(), stop);
    let programs = Programs::find(args.ring_build.clone())?;
    let peers = bench.choose(&args.peers, |peer| programs.fits(peer))?;
    if let Some(directory) = args.file.parent() {
        // If this fails, making the file fails too.
        let _ = std::fs::create_dir_all(directory);
    }
    let files = Files::prepare((Some(&args.file), args.size), &[1], LEAST, &bench.stop)?;
    let size = files.sizes[0].min(args.size.0);
    let machine = Machine::look(&args.file)?;
    let written = cells.iter().find(|cell| cell.is_write());
    let written = written.map(|cell| cell.span(size));
    let scratch = written.map(|size| Scratch::beside(&args.file, size, &bench.stop));
    let mut turns = Turns {
        args,
        bench: &bench,
        programs,
        size,
        scratch: scratch.transpose()?,
        failed: Vec::new(),
    };
    let group = |cell: Cell| {
        let parameters = json!({"work": cell.work, "block": cell.block, "tasks": cell.tasks});
        let peers = peers.iter().copied().filter(|peer| peer.takes_part(&cell));
        Group::new(&*cell.name, parameters, cell.clone(), peers.collect())
    };
    let groups: Vec<_> = cells.into_iter().map(group).collect();
    let cells = bench.play(&groups, |group, peer: &Peer, number| {
        turns.take(&group.work, *peer, number)
    })?;
    let settings = json!({
        "about": format!("{} of file, {} s a turn, {WORKERS} worker threads", Size(size), args.seconds),
        "seed": args.rounds.seed,
        "cache": cache::HOW,
        "legend": "Medians over rounds; us: microseconds; CPU: processor time of one operation; tick: how \
                   late the event loop came to a timer; the last column: operations per second of nowait \
                   divided by those of the peer.",
    });
    let run = bench.run(machine, settings);
    bench.finish(report::complete(run, cells))
}

/// The turns of all cells and peers.
struct Turns<'a> {
    args: &'a Args,
    bench: &'a Bench<'a>,
    programs: Programs,
    /// The bytes of the file that are read.
    size: u64,
    /// The file of the writes, if a cell writes.
    scratch: Option<Scratch>,
    /// The peers that have failed, with their cells.
    failed: Vec<(String, Peer)>,
}

impl Turns<'_> {
    /// Runs one turn; `None` after Ctrl-C. A peer that fails in a cell is left out of it.
    fn take(&mut self, cell: &Cell, peer: Peer, number: usize) -> Result<Option<Value>, Problem> {
        if self.failed.contains(&(cell.name.clone(), peer)) {
            return Ok(None);
        }
        let (file, used) = match &self.scratch {
            Some(scratch) if cell.is_write() => (&scratch.path, cell.span(self.size)),
            _ => (&self.args.file, self.size),
        };
        let turn = Turn {
            peer,
            cell: cell.clone(),
            file: file.clone(),
            size: self.size,
            seconds: self.args.seconds,
            seed: self.args.rounds.seed_of(number),
        };
        cache::prepare(&turn).map_err(|e| Problem::of(file.display(), e))?;
        if self.bench.stop.asked() {
            return Ok(None);
        }
        let outcome = turn.run(self.programs.of(peer), &self.bench.stop);
        check(file, used)?;
        outcome.or_else(|why| {
            self.bench
                .note(format!("{} in {}: {why}", peer.word(), cell.name));
            self.failed.push((cell.name.clone(), peer));
            Ok(None)
        })
    }
}

/// The programs that run the turns.
struct Programs {
    this: PathBuf,
    /// The other build, which tokio-fs-ring needs.
    ring: PathBuf,
}

impl Programs {
    fn find(ring: Option<PathBuf>) -> Result<Programs, Problem> {
        let this =
            std::env::current_exe().map_err(|e| Problem::of("cannot find this program", e))?;
        let ring = ring.unwrap_or_else(|| ring_build(&this));
        Ok(Programs { this, ring })
    }

    fn fits(&self, peer: Peer) -> Fit {
        match peer {
            Peer::TokioFsRing if !self.ring.is_file() => Fit::No(
                "it needs another build of this program, which `make bench-tokio` makes".into(),
            ),
            _ => Fit::Yes,
        }
    }

    fn of(&self, peer: Peer) -> &Path {
        match peer {
            Peer::TokioFsRing => &self.ring,
            _ => &self.this,
        }
    }
}

/// The cells whose names begin with one of --cells, in the order of all cells.
fn chosen(args: &Args) -> Result<Vec<Cell>, String> {
    let mut all = Cell::all();
    for prefix in &args.cells {
        if !all.iter().any(|cell| cell.name.starts_with(prefix)) {
            let names: Vec<&str> = all.iter().map(|cell| cell.name.as_str()).collect();
            let names = names.join(" ");
            return Err(format!("no cell is called {prefix}; there are: {names}"));
        }
    }
    all.retain(|cell| {
        args.cells
            .iter()
            .any(|prefix| cell.name.starts_with(prefix))
    });
    Ok(all)
}

/// The place of the other build: target/ring/release/nowait-bench if this program is
/// target/release/nowait-bench.
fn ring_build(this: &Path) -> PathBuf {
    let target = this.ancestors().nth(2).unwrap_or(this);
    let below = this.strip_prefix(target).unwrap_or(this);
    target.join("ring").join(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_below_the_least_is_refused() {
        assert_eq!(size("4M"), Ok(Size(LEAST)));
        assert!(size("3M").is_err());
    }

    #[test]
    fn the_other_build_is_in_the_folder_ring() {
        let this = Path::new("/target/release/nowait-bench");
        let other = Path::new("/target/ring/release/nowait-bench");
        assert_eq!(ring_build(this), other);
    }
}
