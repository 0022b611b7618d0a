//! One measurement of contenders that take turns, with ratios.
//!
//! ```text
//!  Args ─► plan: cells of contenders ─► files: found or made ─► rounds ─► report
//!                                            │ for each round, cell and contender: a turn
//!                                            └─ prepare the page cache ─ way(turn) ─ Round
//! ```

use std::process::ExitCode;

use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use serde_json::{Value, json};

use super::cache::Cache;
use super::contender::Cell;
use super::files::{Files, Wanted};
use super::machine::Machine;
use super::offsets::Order;
use super::plot::Chart;
use super::round::Round;
use super::run::{self, INTERVAL, ORDER, Run};
use super::settings::{Amount, Common};
use super::turn::Turn;
use super::view::View;

/// The plan of one measurement.
pub struct Plan<'a> {
    pub bench: &'static str,
    pub common: &'a Common,
    /// The share of each file in the size.
    pub shares: Vec<u64>,
    pub blocks: Vec<u64>,
    pub cache: Cache,
    pub order: Order,
    /// One read in this many is timed.
    pub timed: u64,
    pub cells: Vec<Cell>,
    /// The base of the ratios is the first of these that takes part, or else the first contender.
    pub bases: &'static [&'static str],
    pub views: &'static [View],
    pub charts: Option<Charts>,
    pub notes: Vec<String>,
}

/// Makes the charts of one cell's contenders from their rounds.
pub type Charts = fn(&Cell, &[Vec<Round>], &Machine) -> Vec<Chart>;

impl Plan<'_> {
    /// The state of the page cache for a cell, and the order of its reads.
    pub fn state(&self, cell: &Cell) -> (Cache, Order) {
        cell.state.unwrap_or((self.cache, self.order))
    }
}

/// The rounds of a plan.
pub struct Measured<'a> {
    pub plan: Plan<'a>,
    pub files: Files,
    pub machine: Machine,
    /// `[cell][contender][round]`
    pub rounds: Vec<Vec<Vec<Round>>>,
    pub stop: Stop,
}

/// Measures a plan and prints the results.
pub fn conduct(plan: Plan<'_>, stop: Stop) -> Result<ExitCode, Problem> {
    let output = plan.common.output.clone();
    output.finish(measure(plan, stop)?.into_run())
}

/// Measures a plan.
pub fn measure(mut plan: Plan<'_>, stop: Stop) -> Result<Measured<'_>, Problem> {
    plan.common.check()?;
    plan.common.output.prepare()?;
    let wanted = Wanted {
        path: plan.common.file.as_deref(),
        size: plan.common.size,
        shares: &plan.shares,
        block: plan.blocks.iter().copied().max().unwrap_or(1),
    };
    if plan.common.file.is_none() {
        // This is checked before a file is made that is too small.
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
    Ok(Measured {
        plan,
        files,
        machine,
        rounds,
        stop,
    })
}

impl Measured<'_> {
    /// The results of all cells, with their tables and charts.
    pub fn into_run(self) -> Run {
        let plan = &self.plan;
        let mut run = Run::new(plan.bench, self.machine.clone(), self.settings());
        run.interrupted = self.stop.asked();
        plan.notes.iter().for_each(|note| run.note(note));
        for (cell, rounds) in plan.cells.iter().zip(&self.rounds) {
            let mut results = run::Cell::new(cell.label.name(), json!(cell.label));
            for (contender, rounds) in cell.contenders.iter().zip(rounds) {
                results.add(contender.name, contender.ours, rounds);
            }
            let figures = View::compared(&results);
            let figures: Vec<&str> = figures.iter().map(String::as_str).collect();
            let bases = plan
                .views
                .iter()
                .map(|view| view.base(&results, plan.bases));
            let bases: Vec<String> = bases.map(str::to_owned).collect();
            results.compare(&figures, &bases);
            let title = cell.label.title();
            let tables = plan.views.iter();
            run.tables
                .extend(tables.filter_map(|view| view.table(&results, &title, plan.bases)));
            if let Some(charts) = plan.charts {
                run.charts.extend(charts(cell, rounds, &self.machine));
            }
            run.cells.push(results);
        }
        run
    }

    fn settings(&self) -> Value {
        let Measured { plan, files, .. } = self;
        let common = plan.common;
        let mut threads: Vec<usize> = plan.cells.iter().map(|cell| cell.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let (ops, seconds) = match common.amount() {
            Amount::Ops(ops) => (Some(ops), None),
            Amount::Seconds(seconds) => (None, Some(seconds)),
        };
        let amount = match (ops, seconds) {
            (Some(ops), _) => format!("{ops} reads"),
            (_, seconds) => format!("{} s", seconds.unwrap_or_default()),
        };
        let blocks: Vec<String> = plan.blocks.iter().map(|b| Size(*b).to_string()).collect();
        let mut settings = json!({
            "about": format!(
                "reads of {} in {} in {} file{}, depth {}, {amount} a turn, rounds: {}, advice {}",
                blocks.join(", "),
                Size(files.total()),
                files.paths.len(),
                if files.paths.len() == 1 { "" } else { "s" },
                common.depth,
                common.rounds.count(),
                json!(common.advice).as_str().unwrap_or_default(),
            ),
            "files": files,
            "size": files.total(),
            "block": plan.blocks,
            "threads": threads,
            "depth": common.depth,
            "ops": ops,
            "seconds": seconds,
            "rounds": common.rounds.count(),
            "advice": common.advice,
            "cache": plan.state(&plan.cells[0]).0.how(),
            "order": ORDER,
            "seed": common.rounds.seed,
            "timed": format!("1 read in {}", plan.timed),
            "interval": INTERVAL,
            "legend": "Medians over rounds; us: microseconds; stall99: 99 % of the calls that promise \
                       not to block kept their caller no longer (of a blocking call: the call); cs: \
                       context switches.",
        });
        if let Order::Mix(mix) = plan.order {
            settings["mix"] = json!(mix);
        }
        settings
    }
}

/// Checks that a plan that reads each block once does not ask for more reads than blocks.
fn check_ops(plan: &Plan<'_>, each: u64) -> Result<(), Problem> {
    let block = plan.blocks.iter().copied().max().unwrap_or(1);
    let most = each / block * plan.shares.len() as u64;
    match plan.common.amount() {
        Amount::Ops(ops) if plan.order.once() && ops > most => Err(Problem::Usage(format!(
            "--ops {ops}, but there are {most} blocks, and each is read at most once: choose fewer \
             --ops, a larger --size or a larger --file"
        ))),
        _ => Ok(()),
    }
}

/// A note if a turn has read the whole file before its time was over.
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
    let count = plan.common.rounds.count() as usize;
    let turns: usize = plan.cells.iter().map(|cell| cell.contenders.len()).sum();
    let mut progress = Progress::of_turns((turns * count) as u64);
    let mut done = 0;
    for number in 0..count {
        let seed = plan.common.rounds.seed_of(number);
        for (cell, of_cell) in plan.cells.iter().zip(&mut rounds) {
            let n = cell.contenders.len();
            for i in (0..n).map(|i| (i + number) % n) {
                let contender = &cell.contenders[i];
                let cell_name = cell.label.name();
                let round = number + 1;
                progress.at(
                    done,
                    format!("round {round}: {} {cell_name}", contender.name),
                );
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
                let round = (contender.way)(&turn);
                // Of a truncated file, a contender has errors or wrong figures.
                files.check()?;
                let round = round?;
                plan.notes.extend(early(&turn, &round));
                // A turn that was cut short is left out, unless it is the only one.
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
