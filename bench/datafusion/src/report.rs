//! The table of one setting.

use std::fmt::Write;

use crate::measure::{Row, Setting};

/// A line for each query: the median times in milliseconds, and the median of the ratios of the pairs. A ratio above 1
/// means that nowait is faster.
pub fn table(setting: Setting, rows: &[Row]) -> String {
    let state = if setting.cold { "cold" } else { "warm" };
    let mut table = format!(
        "{} processors, {state}: ms\n\n| query | local | nowait | local / nowait |\n|---|---|---|---|\n",
        setting.processors
    );
    let mut ratios = Vec::new();
    for row in rows {
        let times = |at: usize| median(row.rounds.iter().map(|times| times[at] * 1e3).collect());
        let ratio = median(
            row.rounds
                .iter()
                .map(|[local, ours]| local / ours)
                .collect(),
        );
        ratios.push(ratio);
        let (query, local, ours) = (row.query, times(0), times(1));
        let _ = writeln!(table, "| {query} | {local:.1} | {ours:.1} | {ratio:.2} |");
    }
    let _ = writeln!(table, "| median | | | {:.2} |", median(ratios));
    table
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n.is_multiple_of(2) => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}
