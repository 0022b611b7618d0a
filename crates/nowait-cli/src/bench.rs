//! `nowait bench`: contenders side by side, interleaved, with ratios.
//!
//! ```text
//!  Args ─► plan: cells of contenders ─► files: found or made ─► rounds ─► report
//!                                            │ for each round, cell and contender: a turn
//!                                            └─ cache put into its state ─ way(turn) ─ Round
//! ```
//! A bench is a [`Plan`] (`bench/randread.rs`, `bench/cached.rs`); how contenders read is in
//! `blocking`, `pool`, `future`, `local` and `fio`; all else is common to all benches.

mod aio;
mod blocking;
mod cache;
mod cached;
mod class;
mod contender;
mod crossing;
mod delay;
mod dir;
mod draws;
mod files;
mod fio;
mod future;
mod hitrate;
mod iops;
mod local;
mod machine;
mod mix;
mod offsets;
mod pool;
mod race;
mod randread;
mod ratio;
mod report;
mod round;
mod settings;
mod sign_test;
mod syscalls;
mod turn;
mod turnover;

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Map, Value};

use crate::deferred::Deferred;
use crate::problem::{INTERRUPTED, Problem};
use crate::progress::Progress;
use crate::stop::Stop;
use cache::Cache;
use contender::Cell;
use files::{Files, Wanted};
use machine::Machine;
use offsets::{Order, mix};
use report::{Report, Table};
use round::Round;
use settings::{Amount, Common};
use turn::Turn;

use crate::plot::{Chart, Svg};

/// Measures reads beside what people use today.
#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true, after_help = AFTER)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// POSIX AIO under fio: glibc's, and nowait's drop-in
    #[command(after_help = aio::AFTER)]
    Aio(Deferred<aio::Args>),
    /// Random reads of a cold file, many in flight: preadv, threads, io_uring and nowait side by side
    #[command(after_help = AFTER)]
    Randread(Deferred<randread::Args>),
    /// What a hit costs: random reads of a file that the page cache holds whole
    #[command(after_help = AFTER)]
    Cached(Deferred<cached::Args>),
    /// A database's reads at once: mostly cached, mostly not, sequential; pools, a ring, nowait
    #[command(after_help = mix::AFTER)]
    Mix(Deferred<mix::Args>),
    /// What a read costs at each hit rate: trying the page cache always, never, and as nowait decides
    #[command(after_help = hitrate::AFTER)]
    Hitrate(Deferred<hitrate::Args>),
    /// What each call costs: doctor's table, repeated, with medians and spread
    #[command(after_help = syscalls::AFTER)]
    Syscalls(Deferred<syscalls::Args>),
    /// Ask, then read: how often is the page gone in between?
    #[command(after_help = race::AFTER)]
    Race(Deferred<race::Args>),
    /// Listing a directory and asking about every entry: scan, readahead, ls, find, bfs, du
    #[command(after_help = dir::AFTER)]
    Dir(Deferred<dir::Args>),
    /// Operations per second past the page cache: the tables that io_uring was proposed with
    #[command(after_help = iops::AFTER)]
    Iops(Deferred<iops::Args>),
    /// One turn of `dir`
    #[command(hide = true)]
    DirInside(Deferred<dir::inside::Args>),
    /// The process under pressure of `race`
    #[command(hide = true)]
    RaceInside(Deferred<race::inside::Args>),
}

const AFTER: &str = "\
Contenders take turns within each round, on the same file, at the same places, with the same advice,
and the page cache is put into the same state before each turn. Ratios are taken within rounds.
Ctrl-C ends a bench and prints what it has; a second one ends it at once, and then a file that is
removed at the end stays.

JSON (--json), the same for every bench with contenders: {\"bench\", \"version\", \"machine\", \"settings\",
\"interrupted\", \"notes\", \"contenders\": [{\"name\", \"rounds\": [ROUND], \"median\": ROUND, \"spread\"}],
\"ratios\": {\"A/B\": {\"median\", \"low95\", \"high95\", \"cpu\", \"rounds\", \"coverage\"}}}; ROUND has ops, seconds,
ops_per_s, cpu_us_per_op, cpu_percent, switches_per_op, lat_us and stall_us {p50 … max}, and more.
Contenders of `cached` have \"block\" and \"threads\" too, and its ratios are named by them:
\"pread/preadv2@512x1\" is of blocks of 512 bytes and 1 thread.

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// What one bench is to do.
struct Plan<'a> {
    bench: &'static str,
    common: &'a Common,
    /// How the size is shared out to the files.
    shares: Vec<u64>,
    blocks: Vec<u64>,
    cache: Cache,
    order: Order,
    /// One read in so many is timed.
    timed: u64,
    cells: Vec<Cell>,
    /// What the tables compare with: the first of these that takes part, else the first contender.
    bases: &'static [&'static str],
    tables: &'static [Table],
    drawing: Option<Drawing<'a>>,
    notes: Vec<String>,
}

/// The charts of a bench, if the user wants them.
struct Drawing<'a> {
    svg: &'a Svg,
    charts: Charts,
}

/// Makes the charts of one cell's contenders from their rounds, each with the name of its file.
type Charts = fn(&Cell, &[Vec<Round>], &Machine) -> Vec<(&'static str, Chart)>;

impl Plan<'_> {
    /// What the page cache has for a cell, and in what order that reads.
    fn state(&self, cell: &Cell) -> (Cache, Order) {
        cell.state.unwrap_or((self.cache, self.order))
    }
}

/// What came of a plan, before it is put into words.
struct Measured<'a> {
    plan: Plan<'a>,
    files: Files,
    machine: Machine,
    /// `[cell][contender][round]`
    rounds: Vec<Vec<Vec<Round>>>,
    stop: Stop,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let outcome = match &args.bench {
        Bench::Aio(args) => aio::run(args),
        Bench::Randread(args) => args.plan().and_then(conduct),
        Bench::Cached(args) => args.plan().and_then(conduct),
        Bench::Hitrate(args) => hitrate::run(args),
        Bench::Mix(args) => args.plan().and_then(conduct),
        Bench::Syscalls(args) => syscalls::run(args),
        Bench::Race(args) => race::run(args),
        Bench::Dir(args) => dir::run(args),
        Bench::Iops(args) => iops::run(args),
        Bench::DirInside(args) => dir::inside::run(args),
        Bench::RaceInside(args) => race::inside::run(args),
    };
    Ok(outcome.unwrap_or_else(|problem| problem.report()))
}

/// One bench from its files to its report.
fn conduct(plan: Plan<'_>) -> Result<ExitCode, Problem> {
    measure(plan)?.conclude(Map::new(), String::new())
}

/// One bench from its files to its figures.
fn measure(mut plan: Plan<'_>) -> Result<Measured<'_>, Problem> {
    plan.common.check()?;
    if let Some(drawing) = &plan.drawing {
        drawing.svg.prepare().map_err(Problem::Failed)?;
    }
    let stop = Stop::on_signals()?;
    let wanted = Wanted {
        path: plan.common.file.as_deref(),
        size: plan.common.size,
        shares: &plan.shares,
        block: plan.blocks.iter().copied().max().unwrap_or(1),
    };
    if plan.common.file.is_none() {
        // Before time goes into making one that is too small.
        check_ops(&plan, plan.common.size.0 / plan.shares.len() as u64)?;
    }
    let files = Files::prepare(wanted, &stop)?;
    check_ops(&plan, files.sizes[0])?;
    let machine = Machine::look(&files.paths[0])?;
    plan.notes
        .extend(plan.state(&plan.cells[0]).0.begin(&files)?);
    let rounds = play(&mut plan, &files, &stop)?;
    if rounds.iter().flatten().all(Vec::is_empty) {
        return Err(Problem::Interrupted);
    }
    if let Some(Drawing { svg, charts }) = plan.drawing.take() {
        for (cell, of_cell) in plan.cells.iter().zip(&rounds) {
            for (name, chart) in charts(cell, of_cell, &machine) {
                let drawn = svg.draw(name, &chart).map_err(Problem::Failed)?;
                plan.notes
                    .extend(drawn.map(|path| format!("drawn: {}", path.display())));
            }
        }
    }
    Ok(Measured {
        plan,
        files,
        machine,
        rounds,
        stop,
    })
}

impl Measured<'_> {
    /// Prints the report, with what follows from all cells together.
    fn conclude(
        mut self,
        findings: Map<String, Value>,
        found: String,
    ) -> Result<ExitCode, Problem> {
        let interrupted = self.stop.asked();
        let json = self.plan.common.json;
        let mut said = std::collections::HashSet::new();
        self.plan.notes.retain(|note| said.insert(note.clone()));
        Report::new(
            self.plan,
            &self.files,
            self.machine,
            self.rounds,
            interrupted,
        )
        .with_findings(findings, found)
        .print(json)?;
        Ok(if interrupted {
            ExitCode::from(INTERRUPTED)
        } else {
            ExitCode::SUCCESS
        })
    }
}

/// A bench that reads each block once can't read more than there are.
fn check_ops(plan: &Plan<'_>, each: u64) -> Result<(), Problem> {
    let block = plan.blocks.iter().copied().max().unwrap_or(1);
    let most = each / block * plan.shares.len() as u64;
    match plan.common.amount() {
        Amount::Ops(ops) if plan.order.once() && ops > most => Err(Problem::Usage(format!(
            "--ops {ops}, but there are {most} blocks and each is read once at most: choose fewer \
             --ops, a larger --size or a larger --file"
        ))),
        _ => Ok(()),
    }
}

/// What a reader should know of a turn that ran out of file.
fn early(turn: &Turn<'_>, round: &Round) -> Option<String> {
    let ran_out = match (turn.order, turn.amount) {
        (Order::Once | Order::Rising, Amount::Seconds(_)) => round.ops >= turn.blocks(),
        (Order::Mix(_), Amount::Seconds(seconds)) => round.seconds < seconds && !round.cut_short,
        (Order::Mix(_), Amount::Ops(ops)) => round.ops < ops && !round.cut_short,
        _ => false,
    };
    ran_out.then(|| {
        "a turn ended early, when each block of a file had been read once: a larger --size (or \
         --file) makes it longer"
            .into()
    })
}

/// All rounds of all contenders: `[cell][contender][round]`.
fn play(plan: &mut Plan<'_>, files: &Files, stop: &Stop) -> Result<Vec<Vec<Vec<Round>>>, Problem> {
    let mut rounds: Vec<Vec<Vec<Round>>> = plan
        .cells
        .iter()
        .map(|cell| cell.contenders.iter().map(|_| Vec::new()).collect())
        .collect();
    let count = plan.common.rounds as usize;
    let turns: usize = plan.cells.iter().map(|cell| cell.contenders.len()).sum();
    let mut progress = Progress::of_turns((turns * count) as u64);
    let mut done = 0;
    for number in 0..count {
        let seed = mix(plan.common.seed.wrapping_add(number as u64));
        for (cell, of_cell) in plan.cells.iter().zip(&mut rounds) {
            let n = cell.contenders.len();
            for i in (0..n).map(|i| (i + number) % n) {
                let contender = &cell.contenders[i];
                let suffix = cell.label.suffix();
                let round = number + 1;
                progress.at(done, format!("round {round}: {}{suffix}", contender.name));
                done += 1;
                let (cache, order) = plan.state(cell);
                let turn = Turn {
                    files,
                    block: cell.block,
                    depth: plan.common.depth as usize,
                    threads: cell.threads,
                    amount: plan.common.amount(),
                    advice: plan.common.advice,
                    order,
                    timed: plan.timed,
                    seed,
                    stop,
                };
                plan.notes.extend(cache.prepare(&turn)?);
                if stop.asked() {
                    return Ok(rounds);
                }
                let round = (contender.way)(&turn)?;
                plan.notes.extend(early(&turn, &round));
                // A turn cut short says little beside whole ones, and something if alone.
                let of_contender = &mut of_cell[i];
                if round.ops > 0 && (!round.cut_short || of_contender.is_empty()) {
                    of_contender.push(round);
                }
                if stop.asked() {
                    return Ok(rounds);
                }
            }
        }
    }
    Ok(rounds)
}
