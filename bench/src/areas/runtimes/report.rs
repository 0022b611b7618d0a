//! The results: a table for each cell, and charts of the hit rates.

use serde_json::{Value, json};

use super::cell::{Cell, Work};
use super::peer::Peer;
use super::round::Round;
use crate::harness::column::Column;
use crate::harness::machine::Machine;
use crate::harness::plot::{Axis, Chart, Line, Stroke};
use crate::harness::run::{self, Run};
use crate::harness::table::Table;

/// The figures whose ratios are taken.
const COMPARED: [&str; 5] = [
    "ops_per_s",
    "cpu_us_per_op",
    "lat_us/p50",
    "lat_us/p99",
    "tick_us/p99",
];

/// The columns of the tables.
const COLUMNS: [Column; 8] = [
    Column::Median("kops/s", "ops_per_s", 1e-3),
    Column::Range("ops_per_s", 1e-3),
    Column::Median("p50 us", "lat_us/p50", 1.0),
    Column::Median("p99 us", "lat_us/p99", 1.0),
    Column::Median("CPU us/op", "cpu_us_per_op", 1.0),
    Column::Median("tick p99", "tick_us/p99", 1.0),
    Column::Median("tick max", "tick_us/max", 1.0),
    Column::Inverse("nowait is x", "nowait", "ops_per_s"),
];

/// The charts: name, title, unit, figure.
const CHARTS: [(&str, &str, &str, &str); 4] = [
    (
        "mixed-throughput",
        "Reads per second",
        "reads/s",
        "ops_per_s",
    ),
    ("mixed-p50", "Latency, median", "microseconds", "lat_us/p50"),
    (
        "mixed-p99",
        "Latency, 99th percentile",
        "microseconds",
        "lat_us/p99",
    ),
    (
        "mixed-tick",
        "Lateness of the event loop, 99th percentile",
        "microseconds",
        "tick_us/p99",
    ),
];

/// One cell with all its rounds.
pub struct Measured {
    pub cell: Cell,
    pub peers: Vec<(Peer, Vec<Round>)>,
}

impl Measured {
    fn results(&self) -> run::Cell {
        let Cell {
            name,
            work,
            block,
            tasks,
        } = &self.cell;
        let parameters = json!({"work": work, "block": block, "tasks": tasks});
        let mut results = run::Cell::new(name, parameters);
        for (peer, rounds) in &self.peers {
            results.add(peer.name(), peer.is_ours(), rounds);
        }
        results.compare(&COMPARED, &[]);
        results
    }
}

/// The results of all cells.
pub fn run(machine: Machine, settings: Value, measured: &[Measured]) -> Run {
    let mut run = Run::new("runtimes", machine, settings);
    for one in measured {
        let cell = one.results();
        let table = Table::of(&cell.name, &cell, "nowait", "", &COLUMNS);
        run.tables.push(table);
        run.cells.push(cell);
    }
    for (name, title, unit, figure) in CHARTS {
        let line = |peer: &Peer| Line {
            name: peer.name().into(),
            points: points(measured, &run.cells, *peer, figure),
            stroke: match peer.is_ours() {
                true => Stroke::Solid,
                false => Stroke::Dashed,
            },
        };
        let lines: Vec<Line> = Peer::ALL.iter().map(line).collect();
        if lines.iter().any(|line| line.points.len() > 1) {
            run.charts.push(Chart {
                name: name.into(),
                title: title.into(),
                subtitle: run.machine.to_string(),
                x: Axis {
                    label: "hit rate in %".into(),
                    log: false,
                },
                y: Axis {
                    label: unit.into(),
                    log: true,
                },
                lines: lines
                    .into_iter()
                    .filter(|line| !line.points.is_empty())
                    .collect(),
                marks: Vec::new(),
            });
        }
    }
    run
}

/// A figure of a peer at each hit rate.
fn points(measured: &[Measured], cells: &[run::Cell], peer: Peer, figure: &str) -> Vec<(f64, f64)> {
    let each = measured.iter().zip(cells);
    each.filter_map(|(one, cell)| match one.cell.work {
        Work::Mixed(rate) => {
            let y = cell.contender(peer.name())?.figure(figure)?;
            Some((rate as f64, y))
        }
        _ => None,
    })
    .collect()
}
