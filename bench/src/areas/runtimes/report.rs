//! The results: a table for each cell, and charts of the hit rates.

use clap::ValueEnum;

use super::peer::Peer;
use crate::harness::cell::Cell;
use crate::harness::column::Column;
use crate::harness::contender::{Named, Word};
use crate::harness::plot::{Axis, Chart, Line};
use crate::harness::run::Run;

const COMPARED: [&str; 5] = [
    "ops_per_s",
    "cpu_us_per_op",
    "lat_us/p50",
    "lat_us/p99",
    "tick_us/p99",
];

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

/// Adds the cells, their tables and the charts.
pub fn complete(mut run: Run, cells: Vec<Cell>) -> Run {
    for cell in cells {
        run.add(cell, &[], &COMPARED, &COLUMNS);
    }
    for (name, title, unit, figure) in CHARTS {
        let line = |peer: &Peer| {
            let points = points(&run.cells, &peer.word(), figure);
            Line::new(&peer.word(), points, Named::is_ours(peer))
        };
        let lines = Peer::value_variants().iter().map(line);
        let lines: Vec<Line> = lines.filter(|line| !line.points.is_empty()).collect();
        if lines.iter().any(|line| line.points.len() > 1) {
            run.charts.push(Chart {
                name: name.into(),
                title: title.into(),
                subtitle: run.machine.to_string(),
                x: Axis::linear("hit rate in %"),
                y: Axis::log(unit),
                lines,
                marks: Vec::new(),
            });
        }
    }
    run
}

/// A figure of a peer at each hit rate.
fn points(cells: &[Cell], peer: &str, figure: &str) -> Vec<(f64, f64)> {
    let point = |cell: &Cell| {
        let rate = cell.parameters["work"].get("mixed")?.as_f64()?;
        Some((rate, cell.contender(peer)?.figure(figure)?))
    };
    cells.iter().filter_map(point).collect()
}
