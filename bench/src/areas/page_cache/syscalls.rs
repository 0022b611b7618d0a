//! `nowait-bench syscalls`: `nowait doctor`'s table of costs, again and again: what of it is the
//! machine and what its mood.
//!
//! # The JSON shape (keys may be added)
//! ```text
//! {
//!   "bench": "syscalls", "version", "machine": {…}, "interrupted": bool,
//!   "rounds": n,                      how many were measured
//!   "costs_ns": {NAME: {"median", "min", "max", "rounds": [f]}},   of the rounds' medians
//!   "not_measured": {NAME: why},
//!   "break_even": SPREAD | null,      hit rate from which trying beats handing off at once
//!   "ask_first_break_even": SPREAD | null,   … beats asking for residency first
//!   "seed_break_even": 0.3            the latter, on the kernel list in 2015
//! }
//! SPREAD = {"median", "min", "max", "rounds": [f]}
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::harness::interval::middle;
use crate::harness::machine::Machine;
use crate::harness::print::print;
use crate::harness::text::{Paint, remark};
use nowait_cli::doctor::{self, BreakEven, CostTable, SEED_BREAK_EVEN};
use nowait_cli::problem::{INTERRUPTED, Problem};
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;

/// What each call costs: doctor's table, repeated, with medians and spread
///
/// Measures with a temporary file of 512 pages beside PATH (or in it), as doctor does.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// A file or directory on the filesystem in question
    #[arg(default_value = ".")]
    path: PathBuf,

    /// How many rounds
    #[arg(long, value_name = "N", default_value_t = 9,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// The help of its JSON.
pub const AFTER: &str = "\
The machine's mood shows between rounds: a row's figures are the median, the smallest and the largest
of its rounds' medians. Ctrl-C prints what was measured.

JSON (--json): {\"bench\", \"version\", \"machine\", \"interrupted\", \"rounds\", \"costs_ns\":
{NAME: SPREAD}, \"not_measured\": {NAME: why}, \"break_even\": SPREAD|null,
\"ask_first_break_even\": SPREAD|null, \"seed_break_even\"}; SPREAD is {\"median\", \"min\", \"max\",
\"rounds\": [one figure a round]}, of costs in nanoseconds.

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

/// The bench, from its file to its table.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    let stop = Stop::on_signals()?;
    let mut progress = Progress::of_turns(u64::from(args.rounds));
    let bench = doctor::Bench::prepare(&args.path).map_err(Problem::Failed)?;
    let machine = Machine::look(&args.path)?;
    let mut rounds = Vec::new();
    for number in 0..args.rounds {
        progress.at(u64::from(number), "doctor's table".into());
        if stop.asked() {
            break;
        }
        rounds.push(bench.costs());
    }
    drop(progress);
    let interrupted = stop.asked();
    let report = Report::new(machine, &rounds, interrupted).ok_or(Problem::Interrupted)?;
    print(&report, args.json, |paint| report.table(paint))?;
    Ok(if interrupted {
        ExitCode::from(INTERRUPTED)
    } else {
        ExitCode::SUCCESS
    })
}

/// All that came of it.
#[derive(Serialize)]
struct Report {
    bench: &'static str,
    version: &'static str,
    machine: Machine,
    interrupted: bool,
    rounds: usize,
    costs_ns: Map<String, Value>,
    not_measured: Map<String, Value>,
    break_even: Option<Spread>,
    ask_first_break_even: Option<Spread>,
    seed_break_even: f64,
    #[serde(skip)]
    rows: Vec<Row>,
}

/// One figure over the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
    rounds: Vec<f64>,
}

/// One row of the table.
struct Row {
    label: &'static str,
    seed: Option<u32>,
    spread: Spread,
}

impl Spread {
    /// `None` of nothing.
    fn of(rounds: Vec<f64>) -> Option<Spread> {
        let mut sorted = rounds.clone();
        let median = middle(&mut sorted);
        Some(Spread {
            median,
            min: *sorted.first()?,
            max: *sorted.last()?,
            rounds,
        })
    }
}

impl Report {
    /// `None` of no rounds.
    fn new(
        machine: Machine,
        rounds: &[(CostTable, BreakEven)],
        interrupted: bool,
    ) -> Option<Report> {
        let (first, _) = rounds.first()?;
        let mut report = Report {
            bench: "syscalls",
            version: env!("CARGO_PKG_VERSION"),
            machine,
            interrupted,
            rounds: rounds.len(),
            costs_ns: Map::new(),
            not_measured: Map::new(),
            break_even: Spread::of(rounds.iter().filter_map(|r| r.1.trying).collect()),
            ask_first_break_even: Spread::of(rounds.iter().filter_map(|r| r.1.asking).collect()),
            seed_break_even: SEED_BREAK_EVEN,
            rows: Vec::new(),
        };
        for row in &first.rows {
            // A round in which a row could not be measured is none for this row.
            let medians = rounds.iter().filter_map(|(table, _)| table.median(row.key));
            match (Spread::of(medians.collect()), &row.spread) {
                (Some(spread), _) => {
                    report.costs_ns.insert(row.key.into(), json!(spread));
                    report.rows.push(Row {
                        label: row.label,
                        seed: row.seed,
                        spread,
                    });
                }
                (None, Err(why)) => {
                    report.not_measured.insert(row.key.into(), json!(why));
                }
                (None, Ok(_)) => {}
            }
        }
        Some(report)
    }

    fn table(&self, paint: Paint) -> String {
        let mut text = format!(
            "nowait-bench {} {} on {}\n\n",
            self.version, self.bench, self.machine
        );
        let head = format!(
            "{:<38}{:>9}{:>9}{:>9}{:>9}",
            format!("ns, rounds: {}", self.rounds),
            "median",
            "min",
            "max",
            "2015*"
        );
        let _ = writeln!(text, "{}", paint.bold(&head));
        for Row {
            label,
            seed,
            spread,
        } in &self.rows
        {
            let seed = seed.map_or(String::new(), |ns| ns.to_string());
            let line = format!(
                "{label:<38}{:>9.0}{:>9.0}{:>9.0}{seed:>9}",
                spread.median, spread.min, spread.max
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text.push('\n');
        for (rate, what) in [
            (
                &self.break_even,
                "trying the page cache beats handing off at once".to_owned(),
            ),
            (
                &self.ask_first_break_even,
                format!(
                    "trying beats asking for residency first ({:.0} % on the kernel list in 2015)",
                    100.0 * SEED_BREAK_EVEN
                ),
            ),
        ] {
            let _ = match rate {
                Some(rate) => writeln!(
                    text,
                    "From a hit rate of {:.0} % ({:.0}-{:.0} %) {what}.",
                    100.0 * rate.median,
                    100.0 * rate.min,
                    100.0 * rate.max
                ),
                None => writeln!(text, "Not known, for want of figures: from where {what}."),
            };
        }
        text.push_str(
            "Medians of the rounds' medians, and the smallest and largest of them. \
             * fincore() and 1-byte\nreads on \"a slow machine\", kernel list, April 2015.\n",
        );
        for (name, why) in &self.not_measured {
            let why = why.as_str().unwrap_or_default();
            remark(&mut text, paint, &format!("not measured: {name}: {why}"));
        }
        if self.interrupted {
            remark(&mut text, paint, "interrupted; this is what was measured");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_keeps_the_rounds_in_their_order() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(spread.rounds, [3.0, 1.0, 2.0]);
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
