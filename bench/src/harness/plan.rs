//! One measurement: contenders side by side, interleaved, with ratios.
//!
//! ```text
//!  Args ─► plan: cells of contenders ─► files: found or made ─► rounds ─► report
//!                                            │ for each round, cell and contender: a turn
//!                                            └─ cache put into its state ─ way(turn) ─ Round
//! ```

use std::process::ExitCode;

use nowait_cli::problem::{INTERRUPTED, Problem};
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;
use serde_json::{Map, Value};

use super::cache::Cache;
use super::contender::Cell;
use super::files::{Files, Wanted};
use super::machine::Machine;
use super::offsets::{Order, mix};
use super::plot::{Chart, Svg};
use super::report::{Report, Table};
use super::round::Round;
use super::settings::{Amount, Common};
use super::turn::Turn;

/// What one bench is to do.
pub struct Plan<'a> {
    pub bench: &'static str,
    pub common: &'a Common,
    /// How the size is shared out to the files.
    pub shares: Vec<u64>,
    pub blocks: Vec<u64>,
    pub cache: Cache,
    pub order: Order,
    /// One read in so many is timed.
    pub timed: u64,
    pub cells: Vec<Cell>,
    /// What the tables compare with: the first of these that takes part, else the first contender.
    pub bases: &'static [&'static str],
    pub tables: &'static [Table],
    pub drawing: Option<Drawing<'a>>,
    pub notes: Vec<String>,
}

/// The charts of a bench, if the user wants them.
pub struct Drawing<'a> {
    pub svg: &'a Svg,
    pub charts: Charts,
}

/// Makes the charts of one cell's contenders from their rounds, each with the name of its file.
pub type Charts = fn(&Cell, &[Vec<Round>], &Machine) -> Vec<(&'static str, Chart)>;

impl Plan<'_> {
    /// What the page cache has for a cell, and in what order that reads.
    pub fn state(&self, cell: &Cell) -> (Cache, Order) {
        cell.state.unwrap_or((self.cache, self.order))
    }
}

/// What came of a plan, before it is put into words.
pub struct Measured<'a> {
    pub plan: Plan<'a>,
    pub files: Files,
    pub machine: Machine,
    /// `[cell][contender][round]`
    pub rounds: Vec<Vec<Vec<Round>>>,
    pub stop: Stop,
}

/// One bench from its files to its report.
pub fn conduct(plan: Plan<'_>) -> Result<ExitCode, Problem> {
    measure(plan)?.conclude(Map::new(), String::new())
}

/// One bench from its files to its figures.
pub fn measure(mut plan: Plan<'_>) -> Result<Measured<'_>, Problem> {
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
    pub fn conclude(
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
