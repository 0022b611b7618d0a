//! The results of one measurement, in the shape of its JSON, which `areas::AFTER` describes.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cell::{Cell, object};
use super::column::Column;
use super::machine::Machine;
use super::plot::Chart;
use super::table::Table;

/// The results of one measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub area: String,
    pub version: String,
    pub command: String,
    #[serde(default)]
    pub date: String,
    pub machine: Machine,
    pub settings: Map<String, Value>,
    pub interrupted: bool,
    pub notes: Vec<String>,
    pub cells: Vec<Cell>,
    pub findings: Map<String, Value>,
    pub tables: Vec<Table>,
    pub charts: Vec<Chart>,
}

impl Run {
    /// A run without results.
    pub fn new(area: &str, machine: Machine, settings: Value) -> Run {
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let command: Vec<String> = std::iter::once("nowait-bench".to_owned())
            .chain(words.skip(1))
            .collect();
        Run {
            area: area.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            command: command.join(" "),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            machine,
            settings: object(settings),
            interrupted: false,
            notes: Vec::new(),
            cells: Vec::new(),
            findings: Map::new(),
            tables: Vec::new(),
            charts: Vec::new(),
        }
    }

    /// Adds a note, once.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds a cell with the ratios of these figures, and a table of it. The first of `bases` is
    /// that of the table.
    pub fn add(&mut self, mut cell: Cell, bases: &[&str], figures: &[&str], columns: &[Column]) {
        cell.compare(figures, bases);
        let base = bases.first().copied().unwrap_or_default();
        self.tables
            .push(Table::of(&cell.title, &cell, base, "", columns));
        self.cells.push(cell);
    }

    /// Adds cells with their ratios, and a table of each figure: its title, the figure, and a
    /// scale.
    pub fn add_by_figure(
        &mut self,
        mut cells: Vec<Cell>,
        base: &str,
        tables: &[(&str, &str, f64)],
    ) {
        let figures: Vec<&str> = tables.iter().map(|(_, figure, _)| *figure).collect();
        cells
            .iter_mut()
            .for_each(|cell| cell.compare(&figures, &[base]));
        let tables = tables.iter();
        let tables =
            tables.map(|(title, figure, scale)| Table::of_figure(title, figure, *scale, &cells));
        self.tables.extend(tables.collect::<Vec<_>>());
        self.cells = cells;
    }

    /// Returns true if nothing was measured.
    pub fn is_empty(&self) -> bool {
        let mut all = self.cells.iter().flat_map(|cell| &cell.contenders);
        self.findings.is_empty() && all.all(|contender| contender.rounds.is_empty())
    }

    /// The smallest coverage of all ratios; `None` if there are none.
    pub fn coverage(&self) -> Option<f64> {
        let all = self.cells.iter().flat_map(|cell| cell.ratios.values());
        all.map(|ratio| ratio.coverage).reduce(f64::min)
    }
}
