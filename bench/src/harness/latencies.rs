//! Latencies in the buckets of fio.

use super::run::Cell;
use super::table::{Entry, Table};

/// A table of the figures `buckets/usec` and `buckets/msec` below `prefix`: per cent of the operations
/// that took less than each limit, and no less than the limit before. `None` if there are none.
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
