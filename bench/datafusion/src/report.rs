//! The table of one setting.

use std::fmt::Write;

use crate::measure::{Row, Setting};

/// A line for each query: the median times in milliseconds, and the ratio of the pairs: the median, and in parentheses
/// the lowest and the highest. A ratio below 1 means that nowait is faster. The last line is that of the queries' medians.
pub fn table(setting: Setting, rows: &[Row]) -> String {
    let state = if setting.cold { "cold" } else { "warm" };
    let mut table = format!(
        "{} processors, {state}: ms\n\n| query | local | nowait | nowait / local |\n|---|---|---|---|\n",
        setting.processors
    );
    let mut medians = Vec::new();
    for Row { query, rounds } in rows {
        let times = |at: usize| median(rounds.iter().map(|times| times[at] * 1e3).collect());
        let ratios: Vec<f64> = rounds.iter().map(|[local, ours]| ours / local).collect();
        let (local, ours, ratio) = (times(0), times(1), spread(&ratios));
        medians.push(median(ratios));
        let _ = writeln!(table, "| {query} | {local:.1} | {ours:.1} | {ratio} |");
    }
    let _ = writeln!(table, "| all | | | {} |", spread(&medians));
    table
}

/// The median, and the lowest and the highest value.
fn spread(values: &[f64]) -> String {
    let lowest = values.iter().copied().fold(f64::NAN, f64::min);
    let highest = values.iter().copied().fold(f64::NAN, f64::max);
    format!("{:.2} ({lowest:.2}–{highest:.2})", median(values.to_vec()))
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
