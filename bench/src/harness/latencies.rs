//! Latencies: a table with the buckets of fio, and a chart of percentiles.

use super::cell::{Cell, Contender, at};
use super::machine::Machine;
use super::plot::{Axis, Chart, Line};
use super::table::{Entry, Table};
use nowait_cli::interval::middle;

/// A table of the figures `buckets/usec` and `buckets/msec` below `prefix`: per cent of the
/// operations that took less than each limit, and no less than the limit before. `None` without
/// such figures.
pub fn table(title: &str, cell: &Cell, prefix: &str) -> Option<Table> {
    let path = |figure: &str| format!("{prefix}{figure}");
    let all = cell.contenders.iter();
    let shown: Vec<_> = all
        .filter(|contender| contender.figure(&path("ops_per_s")) > Some(0.0))
        .collect();
    let pointer = format!("/{prefix}buckets");
    let buckets = shown.first()?.median.pointer(&pointer)?;
    let mut rows = Vec::new();
    for (unit, symbol) in [("usec", "us"), ("msec", "ms")] {
        for limit in buckets[unit].as_object()?.keys() {
            let path = path(&format!("buckets/{unit}/{limit}"));
            let shares = || shown.iter().map(|c| c.figure(&path).unwrap_or(0.0));
            if shares().any(|share| share > 0.0) {
                let below = match limit.strip_prefix(">=") {
                    Some(limit) => format!(">= {limit} {symbol}"),
                    None => format!("< {limit} {symbol}"),
                };
                let entries = shares().map(|share| match share {
                    0.0 => Entry::default(),
                    share => format!("{:.2}", share.max(0.01)).into(),
                });
                rows.push(std::iter::once(below.into()).chain(entries).collect());
            }
        }
    }
    let names = shown.iter().map(|contender| &contender.name);
    Some(Table::new(format!("{title}, % in"), names, rows))
}

/// A percentile, and the number N for which one read in N takes longer.
const PERCENTILES: [(f64, &str); 5] = [
    (2.0, "p50"),
    (10.0, "p90"),
    (100.0, "p99"),
    (1000.0, "p999"),
    (10000.0, "p9999"),
];

/// A chart of the percentiles of a cell's contenders.
pub fn charts(cell: &Cell, machine: &Machine) -> Vec<Chart> {
    let dash = if cell.name.is_empty() { "" } else { "-" };
    let title = format!("Latency of a read {}", cell.title);
    let name = format!("latency{dash}{}", cell.name);
    let chart = chart(name, title.trim_end().into(), "read", machine, cell, "");
    chart.into_iter().collect()
}

/// The line of one contender: medians over those rounds that have enough operations.
fn line(contender: &Contender, prefix: &str) -> Line {
    let rounds = || contender.rounds.iter();
    let point = |&(one_in, percentile): &(f64, &str)| {
        let enough = rounds().filter(|round| at(round, &format!("{prefix}ops")) >= Some(one_in));
        let each = enough.filter_map(|round| at(round, &format!("{prefix}lat_us/{percentile}")));
        let mut each: Vec<f64> = each.collect();
        (!each.is_empty()).then(|| (one_in, middle(&mut each)))
    };
    let points = PERCENTILES.iter().filter_map(point).collect();
    Line::new(&contender.name, points, contender.ours)
}

/// A chart of the percentiles of `lat_us` below `prefix`; `None` if no contender has two. `what` is
/// one operation.
pub fn chart(
    name: String,
    title: String,
    what: &str,
    machine: &Machine,
    cell: &Cell,
    prefix: &str,
) -> Option<Chart> {
    let lines = cell
        .contenders
        .iter()
        .map(|contender| line(contender, prefix));
    let lines: Vec<Line> = lines.filter(|line| line.points.len() > 1).collect();
    (!lines.is_empty()).then(|| Chart {
        name,
        title,
        subtitle: machine.to_string(),
        x: Axis::log(&format!("one {what} in so many takes longer")),
        y: Axis::log("microseconds"),
        lines,
        marks: Vec::new(),
    })
}
