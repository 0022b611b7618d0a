//! `nowait-bench iops`: operations per second past the page cache, by one thread on a device of little
//! cost. Prints the three tables of the io_uring patches of January 2019.
//!
//! ```text
//!  Args ─► ground: a file, the user's devices, or devices in memory that are made and removed
//!       ─► cells: table × depth, each with all available contenders
//!       ─► for each round, cell and contender: a turn ─► report
//! ```
//! Every contender has the same places, depth and batches (`load`).

mod aio;
mod contender;
mod engine;
mod ground;
mod libaio;
mod load;
mod psync;
mod report;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::harness::contender::{Fit, once_each};
use crate::harness::cores;
use crate::harness::files::open_direct;
use crate::harness::machine::Machine;
use crate::harness::memory_devices::Memory;
use crate::harness::offsets::Order;
use crate::harness::round::Round;
use crate::harness::run::{INTERVAL, ORDER};
use crate::harness::settings::{Advice, Amount, Timed};
use crate::harness::turn::Turn;
use contender::{Contender, Name};
use ground::Ground;
use load::Load;
use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use table::Table;

/// Operations per second past the page cache: the tables that io_uring was proposed with
///
/// With root, devices in memory are made and removed at the end, so that the figures are those of the
/// interface and not of a disk. Without root, files in the current directory are made, read and
/// removed at the end.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("seconds", |a| a.default_value("0.5")))]
pub struct Args {
    /// Read this file; a missing one is made and kept. With --count above 1 the files are PATH-0,
    /// PATH-1, …
    #[arg(long, value_name = "PATH", conflicts_with_all = ["device", "memory"])]
    file: Option<PathBuf>,

    /// Read these block devices
    #[arg(long, value_name = "PATH,…", value_delimiter = ',',
          conflicts_with_all = ["memory", "count", "size"])]
    device: Vec<PathBuf>,

    /// The kind of devices in memory to make (needs root) [default: loop]
    #[arg(long, value_enum)]
    memory: Option<Memory>,

    /// How many devices or files to make. The table per-core uses all, the other tables use the first
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    count: u32,

    /// The size of all devices or files together
    #[arg(long, default_value = "256M")]
    size: Size,

    /// Write instead of reading. This overwrites random blocks of each --device, which must not be in
    /// use
    #[arg(long)]
    write: bool,

    /// The tables to measure
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["latency", "peak", "per-core"])]
    tables: Vec<Table>,

    /// Measure only these depths of the tables
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    depths: Vec<usize>,

    /// The contenders [default: all that are available]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    contenders: Vec<Name>,

    #[command(flatten)]
    timed: Timed,
}

/// The text after the help.
pub const AFTER: &str = "\
Contenders take turns within each round, at the same places, with the same depth and batches; fio draws
its own places. A batch is one operation in the table latency, and a quarter of the depth in the others.
Files are opened with O_DIRECT. The submitting thread and the threads that it starts stay on one core.
The kernel's thread of SQPOLL runs on a second core, so contenders with SQPOLL are not in the table
per-core. CPU is processor time of the process, without kernel threads such as those of a loop device.
fio measures its own latencies; in the table per-core it measures none.

The kernel threads of a loop device limit the rate before the interface does. Devices of the module null_blk
cost less, and can be polled:
  modprobe null_blk poll_queues=1 nr_devices=4
  nowait-bench iops --device /dev/nullb0,/dev/nullb1,/dev/nullb2,/dev/nullb3

Ctrl-C prints what was measured and removes what was made; a second one ends the program at once, and
removes it too.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameters \"table\" (\"latency\" |
\"peak\" | \"per-core\"), \"block\", \"devices\" and \"depth\".

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// One operation in this many is timed.
const TIMED: u64 = 16;

/// Contenders that do the same work.
struct Cell {
    table: Table,
    block: u64,
    depth: usize,
    /// Indexes into the contenders of the bench.
    contenders: Vec<usize>,
    /// `[contender][round]`
    rounds: Vec<Vec<Round>>,
}

/// Measures the tables and prints them.
pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let tables = once_each(&args.tables);
    args.timed.output.prepare()?;
    let smallest = tables
        .iter()
        .map(|table| table.block())
        .min()
        .unwrap_or(4096);
    let ground = Ground::prepare(args, smallest, &stop)?;
    let machine = Machine::look(&ground.first.paths[0])?;
    let mut bench = Bench {
        args,
        contenders: Vec::new(),
        cells: Vec::new(),
        absent: Vec::new(),
        notes: ground.notes.clone(),
        core: cores::last()?,
        stop,
        ground,
    };
    for table in tables {
        bench.take_in(table)?;
    }
    bench.play()?;
    let results = report::run(&bench, machine, bench.settings());
    args.timed.output.finish(results)
}

/// A running measurement.
struct Bench<'a> {
    args: &'a Args,
    contenders: Vec<Contender>,
    cells: Vec<Cell>,
    absent: Vec<(Table, (Name, String))>,
    notes: Vec<String>,
    core: usize,
    stop: Stop,
    ground: Ground,
}

impl Bench<'_> {
    /// Finds the contenders that are available for a table, and makes its cells.
    fn take_in(&mut self, table: Table) -> Result<(), Problem> {
        let block = self.block(table)?;
        let files = self.ground.files_for(block, table.per_core());
        let asked_for = !self.args.contenders.is_empty();
        let names = match asked_for {
            true => once_each(&self.args.contenders),
            false => <Name as clap::ValueEnum>::value_variants().to_vec(),
        };
        let mut there = Vec::new();
        for name in names {
            match name.fits(files, block) {
                Fit::No(why) => {
                    self.absent.push((table, (name, why)));
                    continue;
                }
                Fit::With(note) if !self.notes.contains(&note) => self.notes.push(note),
                Fit::With(_) | Fit::Yes => {}
            }
            let known = self.contenders.iter().position(|c| c.name == name);
            there.push(known.unwrap_or_else(|| {
                self.contenders.push(Contender::new(name));
                self.contenders.len() - 1
            }));
        }
        let wanted =
            |depth: &&usize| self.args.depths.is_empty() || self.args.depths.contains(depth);
        for &depth in table.depths().iter().filter(wanted) {
            let has = |at: &usize| table.has(self.contenders[*at].name, depth);
            let contenders: Vec<usize> = there.iter().copied().filter(has).collect();
            self.cells.push(Cell {
                table,
                block,
                depth,
                rounds: vec![Vec::new(); contenders.len()],
                contenders,
            });
        }
        Ok(())
    }

    /// The bytes of one operation: those of the table, or a larger block if the device requires it.
    fn block(&mut self, table: Table) -> Result<u64, Problem> {
        let wanted = table.block();
        let files = self.ground.files_for(wanted, table.per_core());
        let handle = nowait::Handle::new(open_direct(&files.paths[0], false)?)?;
        let least = handle
            .alignment()
            .map_or(wanted, |needed| u64::from(needed.read_offset));
        if least > wanted {
            self.notes.push(format!(
                "{}: blocks of {}, because the device takes none of {}",
                table.word(),
                Size(least),
                Size(wanted)
            ));
        }
        Ok(wanted.max(least))
    }

    /// All rounds; each begins with the next contender.
    fn play(&mut self) -> Result<(), Problem> {
        let rounds = self.args.timed.rounds.count() as usize;
        let turns: usize = self.cells.iter().map(|cell| cell.contenders.len()).sum();
        let mut progress = Progress::of_turns((turns * rounds) as u64);
        let mut done = 0;
        for round in 0..rounds {
            for cell in 0..self.cells.len() {
                let n = self.cells[cell].contenders.len();
                for i in (0..n).map(|i| (i + round) % n) {
                    let Cell {
                        table,
                        depth,
                        contenders,
                        ..
                    } = &self.cells[cell];
                    let name = self.contenders[contenders[i]].name.word();
                    let at = format!(
                        "round {}: {} {name}, depth {depth}",
                        round + 1,
                        table.word()
                    );
                    progress.at(done, at);
                    done += 1;
                    let figures = self.turn(cell, i, round);
                    self.ground.all.check()?;
                    let figures = figures?;
                    // The figures of a turn that was cut short cannot be compared with others.
                    if self.stop.asked() {
                        return Ok(());
                    }
                    self.cells[cell].rounds[i].push(figures);
                }
            }
        }
        Ok(())
    }

    fn turn(&self, cell: usize, i: usize, round: usize) -> Result<Round, Problem> {
        let cell = &self.cells[cell];
        let contender = &self.contenders[cell.contenders[i]];
        let depth = contender.name.depth(cell.depth);
        contender.play(&Load {
            turn: Turn {
                files: self.ground.files_for(cell.block, cell.table.per_core()),
                block: cell.block,
                depth,
                threads: 1,
                amount: Amount::Seconds(self.args.timed.seconds),
                advice: Advice::Normal,
                order: Order::Any,
                timed: TIMED,
                seed: self.args.timed.rounds.seed_of(round),
                stop: &self.stop,
            },
            batch: cell.table.batch(depth),
            write: self.args.write,
            core: self.core,
            latencies: !cell.table.per_core(),
        })
    }

    fn settings(&self) -> Value {
        let args = self.args;
        let names: Vec<&str> = self.contenders.iter().map(|c| c.name.word()).collect();
        json!({
            "about": format!("{} s a turn, rounds: {}", args.timed.seconds, args.timed.rounds.count()),
            "on": self.ground.what,
            "files": self.ground.all,
            "write": args.write,
            "seconds": args.timed.seconds,
            "rounds": args.timed.rounds.count(),
            "contenders": names,
            "seed": args.timed.rounds.seed,
            "timed": format!("1 operation in {TIMED}"),
            "order": ORDER,
            "legend": "Medians over rounds; CPU: processor time of one operation; ratios are of operations per second.",
            "interval": INTERVAL,
        })
    }
}
