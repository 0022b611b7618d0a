//! What a bench prints: one JSON object, or tables for people.
//!
//! # The JSON shape (keys may be added)
//! ```text
//! {
//!   "bench": "tokio",
//!   "version": "0.1.0",
//!   "machine": {"kernel", "arch", "cores", "filesystem"},
//!   "settings": {"size", "seconds", "rounds", "workers", "advice", "cache", "interval", "coverage"},
//!   "notes": [string],                who is left out, and why
//!   "cells": [{
//!     "name", "work", "block", "tasks",
//!     "peers": [{"name", "figures": {FIGURE: {"median", "low", "high", "rounds": [number]}}}],
//!     "ratios": {"A/B": {FIGURE: {"median", "low95", "high95"}}}
//!   }]
//! }
//! FIGURE = "ops_per_s" | "p50_us" | "p99_us" | "max_us" | "cpu_us_per_op" | "cpu_percent"
//!        | "tick_p50_us" | "tick_p99_us" | "tick_max_us"
//! ```
//! "low" and "high" are the smallest and the largest round. A ratio is A's figure in B's, paired by
//! round; A is one of ours. Peers without an event loop have no "tick" figures. "work" is "cached",
//! "cold", {"mixed": per cent}, "sequential" or "positional".

use std::fmt::Write as _;
use std::io::{self, Write as _};

use serde_json::{Map, Value, json};

use crate::areas::runtimes::args::Run;
use crate::areas::runtimes::cache;
use crate::areas::runtimes::cell::Cell;
use crate::areas::runtimes::machine::Machine;
use crate::areas::runtimes::peer::Peer;
use crate::areas::runtimes::ratio::ratio;
use crate::areas::runtimes::round::Round;
use crate::areas::runtimes::turn::WORKERS;
use crate::harness::interval::{Interval, middle};

/// One cell with all its rounds.
pub struct Measured {
    pub cell: Cell,
    pub peers: Vec<(Peer, Vec<Round>)>,
}

/// All that came of a bench.
pub struct Report {
    pub machine: Machine,
    pub cells: Vec<Measured>,
    settings: Value,
    notes: Vec<String>,
}

/// A figure of a round.
#[derive(Clone, Copy, Debug)]
pub enum Figure {
    Ops,
    P50,
    P99,
    Max,
    Cpu,
    CpuPercent,
    TickP50,
    TickP99,
    TickMax,
}

impl Figure {
    const ALL: [Figure; 9] = [
        Figure::Ops,
        Figure::P50,
        Figure::P99,
        Figure::Max,
        Figure::Cpu,
        Figure::CpuPercent,
        Figure::TickP50,
        Figure::TickP99,
        Figure::TickMax,
    ];

    fn name(self) -> &'static str {
        match self {
            Figure::Ops => "ops_per_s",
            Figure::P50 => "p50_us",
            Figure::P99 => "p99_us",
            Figure::Max => "max_us",
            Figure::Cpu => "cpu_us_per_op",
            Figure::CpuPercent => "cpu_percent",
            Figure::TickP50 => "tick_p50_us",
            Figure::TickP99 => "tick_p99_us",
            Figure::TickMax => "tick_max_us",
        }
    }

    fn of(self, round: &Round) -> Option<f64> {
        let tick = round.tick_us.as_ref();
        match self {
            Figure::Ops => Some(round.ops_per_s),
            Figure::P50 => Some(round.lat_us.p50),
            Figure::P99 => Some(round.lat_us.p99),
            Figure::Max => Some(round.lat_us.max),
            Figure::Cpu => Some(round.cpu_us_per_op),
            Figure::CpuPercent => Some(round.cpu_percent),
            Figure::TickP50 => tick.map(|tick| tick.p50),
            Figure::TickP99 => tick.map(|tick| tick.p99),
            Figure::TickMax => tick.map(|tick| tick.max),
        }
    }

    /// Of each round; none if some have none.
    fn each(self, rounds: &[Round]) -> Vec<f64> {
        let all: Option<Vec<f64>> = rounds.iter().map(|round| self.of(round)).collect();
        all.unwrap_or_default()
    }

    /// The median over rounds.
    pub fn median(self, rounds: &[Round]) -> Option<f64> {
        let mut each = self.each(rounds);
        (!each.is_empty()).then(|| middle(&mut each))
    }

    fn ratio(self, a: &[Round], b: &[Round]) -> Option<Interval> {
        ratio(&self.each(a), &self.each(b))
    }
}

impl Report {
    pub fn new(args: &Run, machine: Machine, cells: Vec<Measured>, notes: Vec<String>) -> Report {
        Report {
            machine,
            cells,
            settings: json!({
                "size": args.size,
                "seconds": args.seconds,
                "rounds": args.rounds,
                "workers": WORKERS,
                "advice": "POSIX_FADV_RANDOM on every descriptor",
                "cache": cache::HOW,
                "interval": "order statistics of the paired ratios (sign test)",
                "coverage": short(Interval::coverage(args.rounds as usize)),
            }),
            notes,
        }
    }

    /// On standard output.
    ///
    /// # Errors
    /// If that can't be written.
    pub fn print(&self, as_json: bool) -> Result<(), String> {
        let text = match as_json {
            true => format!("{}\n", self.json()),
            false => self.text(),
        };
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Whoever read it has seen enough.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|e| format!("standard output: {e}")),
        }
    }

    fn json(&self) -> Value {
        json!({
            "bench": "tokio",
            "version": env!("CARGO_PKG_VERSION"),
            "machine": self.machine,
            "settings": self.settings,
            "notes": self.notes,
            "cells": self.cells.iter().map(Measured::json).collect::<Value>(),
        })
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.machine);
        for measured in &self.cells {
            measured.say(&mut text);
        }
        let _ = writeln!(
            text,
            "\nMedians over rounds; us: microseconds; cpu: processor time of one operation; tick: how late \
             the event\nloop came to a timer. The last column: nowait's throughput in the peer's, the median \
             of the ratios within\nrounds, with the range that holds the true one with {} %.",
            (100.0 * self.settings["coverage"].as_f64().unwrap_or(0.0)).round(),
        );
        for note in &self.notes {
            let _ = writeln!(text, "Note: {note}");
        }
        text
    }
}

impl Measured {
    pub fn rounds(&self, of: Peer) -> Option<&[Round]> {
        let (_, rounds) = self.peers.iter().find(|(peer, _)| *peer == of)?;
        Some(rounds)
    }

    fn json(&self) -> Value {
        let figures = |rounds: &[Round]| -> Map<String, Value> {
            let all = Figure::ALL.iter().filter_map(|figure| {
                let each = figure.each(rounds);
                let mut sorted = each.clone();
                let median = middle(&mut sorted);
                let value = json!({
                    "median": short(median),
                    "low": short(*sorted.first()?),
                    "high": short(*sorted.last()?),
                    "rounds": each.into_iter().map(short).collect::<Vec<f64>>(),
                });
                Some((figure.name().to_owned(), value))
            });
            all.collect()
        };
        let peers = self
            .peers
            .iter()
            .map(|(peer, rounds)| json!({"name": peer.name(), "figures": figures(rounds)}));
        json!({
            "name": self.cell.name,
            "work": self.cell.work,
            "block": self.cell.block,
            "tasks": self.cell.tasks,
            "peers": peers.collect::<Value>(),
            "ratios": self.ratios(),
        })
    }

    /// Each of ours beside each of the others.
    fn ratios(&self) -> Map<String, Value> {
        let mut all = Map::new();
        for (a, of_a) in self.peers.iter().filter(|(peer, _)| peer.is_ours()) {
            for (b, of_b) in self.peers.iter().filter(|(peer, _)| peer != a) {
                let figures = Figure::ALL.iter().filter_map(|figure| {
                    let Interval { median, low95, high95 } = figure.ratio(of_a, of_b)?;
                    let value = json!({"median": short(median), "low95": short(low95), "high95": short(high95)});
                    Some((figure.name().to_owned(), value))
                });
                let key = format!("{}/{}", a.name(), b.name());
                all.insert(key, Value::Object(figures.collect()));
            }
        }
        all
    }

    /// For people.
    fn say(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\n{:<26}{:>9} {:>15}{:>10}{:>10}{:>9}{:>10}{:>10}  nowait is × as fast",
            self.cell.name,
            "ops/s",
            "range, k",
            "p50 us",
            "p99 us",
            "cpu us",
            "tick p99",
            "tick max",
        );
        for (peer, rounds) in &self.peers {
            let shown = |figure: Figure| figure.median(rounds).map_or("-".into(), digits);
            let mut ops = Figure::Ops.each(rounds);
            ops.sort_by(f64::total_cmp);
            let range = match (ops.first(), ops.last()) {
                (Some(low), Some(high)) => format!("{}-{}", digits(low / 1e3), digits(high / 1e3)),
                _ => "-".into(),
            };
            let ratio = self
                .rounds(Peer::Nowait)
                .and_then(|ours| Figure::Ops.ratio(ours, rounds));
            let ratio = match ratio {
                Some(r) if *peer != Peer::Nowait => {
                    format!(
                        "{} ({}-{})",
                        digits(r.median),
                        digits(r.low95),
                        digits(r.high95)
                    )
                }
                _ => String::new(),
            };
            let _ = writeln!(
                text,
                "  {:<24}{:>9} {:>15}{:>10}{:>10}{:>9}{:>10}{:>10}  {ratio}",
                peer.name(),
                shown(Figure::Ops),
                range,
                shown(Figure::P50),
                shown(Figure::P99),
                shown(Figure::Cpu),
                shown(Figure::TickP99),
                shown(Figure::TickMax),
            );
        }
    }
}

/// Four digits, which are more than these figures have.
fn short(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(3 - x.abs().log10().floor() as i32);
    (x * scale).round() / scale
}

/// Three digits that count.
fn digits(x: f64) -> String {
    match x.abs() {
        a if a < 9.995 => format!("{x:.2}"),
        a if a < 99.95 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_that_count() {
        assert_eq!(short(123_456.0), 123_500.0);
        assert_eq!(short(0.012_344_9), 0.012_34);
        assert_eq!(short(0.0), 0.0);
        assert_eq!(digits(9.996), "10.0");
        assert_eq!(digits(99.96), "100");
    }
}
