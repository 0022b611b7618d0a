//! The aggregate of a report: small enough to be kept in a repository, with names in place of
//! positions.
//!
//! ```text
//! {PART: {"version", "command", "date", "machine", "settings", "notes", "charts",
//!         "cells": {CELL: {"medians": {CONTENDER: {FIGURE: number}},
//!                          "ratios": {"A/B": {FIGURE: [median, low95, high95]}}}}}}
//! ```
//! Figures have four digits. Only figures that are compared are kept.

use serde_json::{Map, Value, json};

use super::results::Report;
use crate::harness::cell::Cell;
use crate::harness::run::Run;

/// The points of a line that are kept.
const MOST_POINTS: usize = 500;

impl Report {
    /// The results of all parts.
    pub fn aggregate(&self) -> Value {
        let parts = self
            .measured()
            .map(|(part, run)| (part.name.to_owned(), of_run(run)));
        Value::Object(parts.collect())
    }
}

fn of_run(run: &Run) -> Value {
    let mut charts = run.charts.clone();
    for line in charts.iter_mut().flat_map(|chart| &mut chart.lines) {
        let one_in = line.points.len().div_ceil(MOST_POINTS).max(1);
        line.points = line.points.iter().copied().step_by(one_in).collect();
    }
    let cells = run
        .cells
        .iter()
        .map(|cell| (cell.name.clone(), of_cell(cell)));
    rounded(json!({
        "version": run.version,
        "command": run.command,
        "date": run.date,
        "machine": run.machine,
        "settings": run.settings,
        "notes": run.notes,
        "cells": cells.collect::<Map<_, _>>(),
        "charts": charts,
    }))
}

fn of_cell(cell: &Cell) -> Value {
    let mut medians = Map::new();
    for contender in &cell.contenders {
        let figures = contender.spread.keys();
        let figures =
            figures.filter_map(|figure| Some((figure.clone(), contender.figure(figure)?.into())));
        medians.insert(contender.name.clone(), Value::Object(figures.collect()));
    }
    let mut ratios = Map::new();
    for (pair, ratio) in &cell.ratios {
        let figures = ratio.figures.iter();
        let figures =
            figures.map(|(figure, r)| (figure.clone(), json!([r.median, r.low95, r.high95])));
        ratios.insert(pair.clone(), Value::Object(figures.collect()));
    }
    json!({"medians": medians, "ratios": ratios})
}

/// A value with its fractions rounded to four significant digits.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            format!("{number:.3e}")
                .parse()
                .map_or(Value::Null, |x: f64| json!(x))
        }
        Value::Array(values) => values.into_iter().map(rounded).collect(),
        Value::Object(values) => {
            let values = values.into_iter();
            Value::Object(values.map(|(key, value)| (key, rounded(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        let value =
            json!({"a": [1.234567, 0.000_123_456, 123_456.7], "n": 1234567, "s": "1.23456"});
        let want = json!({"a": [1.235, 0.000_123_5, 123_500.0], "n": 1234567, "s": "1.23456"});
        assert_eq!(rounded(value), want);
    }

    #[test]
    fn cells_and_contenders_have_their_names() {
        let mut cell = Cell::default();
        cell.add("a", true, &vec![json!({"seconds": 2.0, "ops": 5}); 6]);
        cell.add("b", false, &vec![json!({"seconds": 1.0, "ops": 5}); 6]);
        cell.compare(&["seconds"], &[]);
        let want = json!({
            "medians": {"a": {"seconds": 2.0}, "b": {"seconds": 1.0}},
            "ratios": {"a/b": {"seconds": [2.0, 2.0, 2.0]}},
        });
        assert_eq!(of_cell(&cell), want);
    }
}
