//! `nowait-bench syscalls`: the cost table of `nowait doctor`, repeated, with medians and spread.
//!
//! In its JSON each call is a contender with the figure `ns`. `findings` has `break_even` (the hit
//! rate from which trying the page cache beats handing off at once), `ask_first_break_even` (the
//! hit rate from which trying beats asking for residency first), both {"median", "min", "max"} or
//! null, and `seed_break_even`: `ask_first_break_even` on the kernel list in 2015.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::harness::bench::Bench;
use crate::harness::cell::{Absent, Cell};
use crate::harness::machine::Machine;
use crate::harness::output::Output;
use crate::harness::run::Run;
use crate::harness::settings::RoundCount;
use crate::harness::table::{Entry, Table};
use nowait_cli::doctor::{self, BreakEven, CostTable, SEED_BREAK_EVEN};
use nowait_cli::interval::middle;
use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;

/// The cost of each call: the table of `nowait doctor`, repeated, with medians and spread
///
/// Measures with a temporary file of 512 pages in PATH, or in its directory, as doctor does.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("rounds", |a| a.default_value("9").help("How many rounds")))]
pub struct Args {
    /// A file or directory on the filesystem to measure
    #[arg(default_value = ".")]
    path: PathBuf,

    #[command(flatten)]
    rounds: RoundCount,

    #[command(flatten)]
    output: Output,
}

pub const AFTER: &str = "\
The figures of a row are the median, the smallest and the largest of the medians of the rounds. Ctrl-C
prints what was measured.

JSON (--json): the shape of all areas (nowait-bench --help). Each call is a contender with the figure ns.
\"findings\" has \"break_even\", \"ask_first_break_even\" ({\"median\", \"min\", \"max\"} or null) and
\"seed_break_even\".";

const COLUMNS: [&str; 4] = ["median", "min", "max", "2015"];

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let output = Bench::new("syscalls", &args.output, args.rounds.count, stop.clone());
    let mut progress = Progress::of_turns(u64::from(args.rounds.count));
    let bench = doctor::Bench::prepare(&args.path).map_err(Problem::Failed)?;
    let machine = Machine::look(&args.path)?;
    let mut rounds = Vec::new();
    for number in 0..args.rounds.count {
        progress.at(u64::from(number), "doctor's table".into());
        if stop.asked() {
            break;
        }
        rounds.push(bench.costs());
    }
    drop(progress);
    let settings = json!({
        "legend": "Medians of the rounds' medians, and the smallest and largest of them. 2015: fincore() \
                   and 1-byte reads on \"a slow machine\", kernel list, April 2015.",
    });
    let mut run = output.run(machine, settings);
    results(&mut run, &rounds);
    output.finish(run)
}

/// Adds the costs, their table and the break-even points.
fn results(run: &mut Run, rounds: &[(CostTable, BreakEven)]) {
    let Some((first, _)) = rounds.first() else {
        return;
    };
    let cell = costs(first, rounds);
    run.tables.push(table(first, &cell));
    break_even(run, rounds);
    run.cells.push(cell);
}

/// The costs of the calls. A call that no round could measure is absent.
fn costs(first: &CostTable, rounds: &[(CostTable, BreakEven)]) -> Cell {
    let mut cell = Cell::default();
    for call in &first.rows {
        // A round in which a call could not be measured has no figure for it.
        let medians = rounds
            .iter()
            .filter_map(|(table, _)| table.median(call.key));
        let medians: Vec<Value> = medians.map(|ns| json!({"ns": ns})).collect();
        cell.add(call.key, false, &medians);
        if let (None, Err(why)) = (cell.contender(call.key), &call.spread) {
            cell.absent.push(Absent {
                name: call.key.into(),
                why: format!("not measured: {why}"),
            });
        }
    }
    cell.compare(&["ns"], &[]);
    cell
}

/// The table of the calls that were measured.
fn table(first: &CostTable, cell: &Cell) -> Table {
    let whole = |ns: Option<f64>| ns.map_or(String::new(), |ns| format!("{ns:.0}")).into();
    let rows = first.rows.iter().filter_map(|call| {
        let contender = cell.contender(call.key)?;
        let spread = contender.spread.get("ns");
        Some(vec![
            Entry::from(call.label),
            whole(contender.figure("ns")),
            whole(spread.map(|spread| spread.min)),
            whole(spread.map(|spread| spread.max)),
            whole(call.seed.map(f64::from)),
        ])
    });
    Table::new("ns", COLUMNS, rows.collect())
}

/// Adds the hit rates at which two methods cost the same, and their table.
fn break_even(run: &mut Run, rounds: &[(CostTable, BreakEven)]) {
    let points = [
        (
            "break_even",
            "trying beats handing off at once",
            rounds.iter().filter_map(|r| r.1.trying).collect(),
            None,
        ),
        (
            "ask_first_break_even",
            "trying beats asking for residency first",
            rounds.iter().filter_map(|r| r.1.asking).collect(),
            Some(SEED_BREAK_EVEN),
        ),
    ];
    let percent = |rate: Option<f64>| -> Entry {
        let percent = rate.map(|rate| format!("{:.0} %", 100.0 * rate));
        percent.unwrap_or_else(|| "-".into()).into()
    };
    let mut rows = Vec::new();
    for (key, label, rates, seed) in points {
        let mut rates: Vec<f64> = rates;
        let median = middle(&mut rates);
        let (min, max) = (rates.first().copied(), rates.last().copied());
        let found = min.map(|min| json!({"median": median, "min": min, "max": max}));
        run.findings.insert(key.into(), json!(found));
        rows.push(vec![
            label.into(),
            percent(min.map(|_| median)),
            percent(min),
            percent(max),
            seed.map_or(Entry::default(), |seed| percent(Some(seed))),
        ]);
    }
    run.findings
        .insert("seed_break_even".into(), json!(SEED_BREAK_EVEN));
    run.tables
        .push(Table::new("from a hit rate of", COLUMNS, rows));
}
