//! Latencies: a table with the buckets of fio, and a chart of percentiles.

use super::contender;
use super::interval::middle;
use super::machine::Machine;
use super::percentiles::Percentiles;
use super::plot::{Axis, Chart, Line, Stroke};
use super::round::Round;
use super::run::Cell;
use super::table::{Entry, Table};

/// A table of the figures `buckets/usec` and `buckets/msec` below `prefix`: per cent of the operations that
/// took less than each limit, and no less than the limit before. `None` without such figures.
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
    let names = shown.iter().map(|contender| contender.name.clone());
    Some(Table {
        title: format!("{title}, % in"),
        columns: std::iter::once(String::new()).chain(names).collect(),
        rows,
        ..Table::default()
    })
}

/// A percentile, and the number N for which one read in N takes longer.
type Percentile = (f64, fn(&Percentiles) -> f64);

const PERCENTILES: [Percentile; 5] = [
    (2.0, |lat| lat.p50),
    (10.0, |lat| lat.p90),
    (100.0, |lat| lat.p99),
    (1000.0, |lat| lat.p999),
    (10000.0, |lat| lat.p9999),
];

/// A chart of the percentiles of a cell's contenders: medians over the rounds.
pub fn charts(cell: &contender::Cell, rounds: &[Vec<Round>], machine: &Machine) -> Vec<Chart> {
    let of = |(contender, rounds): (&contender::Contender, &Vec<Round>)| {
        let rounds = rounds.iter();
        let rounds = rounds.filter_map(|round| Some((round.ops, round.lat_us?)));
        line(contender.name, contender.ours, &rounds.collect::<Vec<_>>())
    };
    let lines = cell.contenders.iter().zip(rounds).map(of);
    let name = cell.label.name();
    let dash = if name.is_empty() { "" } else { "-" };
    let title = format!("Latency of a read {}", cell.label.title());
    let chart = chart(
        format!("latency{dash}{name}"),
        title.trim_end().into(),
        "read",
        machine,
        lines.collect(),
    );
    chart.into_iter().collect()
}

/// The line of one contender: medians over its rounds, each with its number of operations.
pub fn line(name: &str, ours: bool, rounds: &[(u64, Percentiles)]) -> Line {
    let point = |&(one_in, percentile): &Percentile| {
        let rounds = rounds.iter().filter(|(ops, _)| *ops as f64 >= one_in);
        let mut each: Vec<f64> = rounds.map(|(_, latencies)| percentile(latencies)).collect();
        (!each.is_empty()).then(|| (one_in, middle(&mut each)))
    };
    Line {
        name: name.into(),
        points: PERCENTILES.iter().filter_map(point).collect(),
        stroke: match ours {
            true => Stroke::Solid,
            false => Stroke::Dashed,
        },
    }
}

/// A chart of such lines; `None` if none has two points. `what` is one operation.
pub fn chart(
    name: String,
    title: String,
    what: &str,
    machine: &Machine,
    lines: Vec<Line>,
) -> Option<Chart> {
    let lines: Vec<Line> = lines
        .into_iter()
        .filter(|line| line.points.len() > 1)
        .collect();
    (!lines.is_empty()).then(|| Chart {
        name,
        title,
        subtitle: machine.to_string(),
        x: Axis {
            label: format!("one {what} in so many takes longer"),
            log: true,
        },
        y: Axis {
            label: "microseconds".into(),
            log: true,
        },
        lines,
        marks: Vec::new(),
    })
}
