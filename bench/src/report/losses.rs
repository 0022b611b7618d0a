//! The losses of a report: the ratios in which nowait is worse than a contender that is not nowait.

use crate::harness::cell::{Cell, more_is_better};
use crate::harness::run::Run;
use crate::harness::table::{Entry, Table};
use nowait_cli::interval::Verdict;

/// The figures that count, with their names for people. The others follow from these.
const FIGURES: [(&str, &str); 10] = [
    ("ops_per_s", "operations per second"),
    ("us_per_op", "time per operation"),
    ("seconds", "time"),
    ("cpu_us_per_op", "processor time"),
    ("lat_us/p99", "p99 latency"),
    ("ns", "time of the call"),
    ("classes/hot/ops_per_s", "hot files per second"),
    ("classes/hot/lat_us/p99", "p99 latency of hot files"),
    ("classes/cold/ops_per_s", "cold files per second"),
    ("classes/cold/lat_us/p99", "p99 latency of cold files"),
];

/// The losses of one run: a row for each, and `None` if there are none.
///
/// A ratio is a loss if its whole range is on the worse side of 1. In a cell with several of
/// nowait's contenders each of them has its row.
pub fn table(run: &Run, title: &str) -> Option<Table> {
    let mut rows = Vec::new();
    for cell in &run.cells {
        for ours in cell.contenders.iter().filter(|c| c.ours) {
            for peer in cell.contenders.iter().filter(|c| !c.ours) {
                for (figure, words) in FIGURES {
                    rows.extend(row(cell, [&ours.name, &peer.name], figure, words));
                }
            }
        }
    }
    let columns = ["cell", "nowait's", "beside", "figure", "ratio"];
    (!rows.is_empty()).then(|| Table {
        title: title.into(),
        source: None,
        columns: columns.map(str::to_owned).into(),
        rows,
    })
}

fn row(cell: &Cell, [ours, peer]: [&str; 2], figure: &str, words: &str) -> Option<Vec<Entry>> {
    let ratio = Entry::ratio(cell.ratio(ours, peer, figure), more_is_better(figure));
    (ratio.verdict == Some(Verdict::Worse)).then(|| {
        let words = [cell.name.as_str(), ours, peer, words].map(Entry::from);
        words.into_iter().chain([ratio]).collect()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::harness::machine::Machine;

    #[test]
    fn a_loss_is_a_ratio_whose_range_is_on_the_worse_side() {
        let machine = Machine::look(std::path::Path::new(".")).unwrap();
        let mut run = Run::new("cached", machine, json!({}));
        let mut cell = Cell::default();
        let rounds =
            |rate: f64, cpu: f64| vec![json!({"ops_per_s": rate, "cpu_us_per_op": cpu}); 6];
        cell.add("nowait", true, &rounds(1.0, 1.0));
        cell.add("pread", false, &rounds(2.0, 3.0));
        cell.compare(&["ops_per_s", "cpu_us_per_op"], &[]);
        run.cells.push(cell);
        let table = table(&run, "The cost of a hit").unwrap();
        let rows: Vec<Vec<&str>> = table
            .rows
            .iter()
            .map(|row| row.iter().map(|entry| entry.text.as_str()).collect())
            .collect();
        let want = [
            "",
            "nowait",
            "pread",
            "operations per second",
            "0.50 (0.50-0.50)",
        ];
        assert_eq!(rows, [want]);
    }
}
