//! The results: a table for each tree.

use serde::Serialize;
use serde_json::{Value, json};

use super::contender::{Contender, Name};
use super::tree::{Tree, Work};
use crate::harness::child::Ended;
use crate::harness::column::Column;
use crate::harness::machine::Machine;
use crate::harness::run::{Cell, Run};
use crate::harness::table::Table;
use nowait_cli::size::Size;

/// The figures whose ratios are taken.
const COMPARED: [&str; 3] = ["files_per_s", "seconds", "cpu_s"];

/// The columns of the tables.
const COLUMNS: [Column; 6] = [
    Column::Median("ms", "seconds", 1e3),
    Column::Range("seconds", 1e3),
    Column::Median("CPU ms", "cpu_s", 1e3),
    Column::Median("cached %", "cached_percent", 1.0),
    Column::Ratio("", "files_per_s"),
    Column::Short("CPU", "cpu_s"),
];

/// One turn of a contender.
#[derive(Clone, Debug, Serialize)]
pub struct Turn {
    seconds: f64,
    files_per_s: f64,
    cpu_s: f64,
    /// The share of the bytes that are cached after the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_percent: Option<f64>,
}

impl Turn {
    /// The figures of a process that has ended.
    pub fn new(tree: &Tree, ended: &Ended, cached_percent: Option<f64>) -> Turn {
        Turn {
            seconds: ended.seconds,
            files_per_s: tree.files.len() as f64 / ended.seconds.max(1e-9),
            cpu_s: ended.used.cpu(),
            cached_percent,
        }
    }
}

/// The turns of all contenders on one tree.
pub struct Results {
    pub name: &'static str,
    pub work: Work,
    pub contenders: Vec<Contender>,
    files: usize,
    bytes: u64,
    turns: Vec<Vec<Turn>>,
}

impl Results {
    pub fn new(tree: &Tree, work: Work, contenders: Vec<Contender>) -> Results {
        Results {
            name: tree.name,
            work,
            files: tree.files.len(),
            bytes: tree.bytes(),
            turns: vec![Vec::new(); contenders.len()],
            contenders,
        }
    }

    /// Adds a contender's next turn.
    pub fn add(&mut self, contender: usize, turn: Turn) {
        self.turns[contender].push(turn);
    }

    /// The results, and their table.
    fn cell(&self) -> (Cell, Table) {
        let (cache, words) = match self.work {
            Work::Count => ("warm", "cached"),
            Work::Read => ("cold", "not cached"),
        };
        let (files, bytes) = (self.files, self.bytes);
        let parameters = json!({"files": files, "bytes": bytes, "cache": cache});
        let mut cell = Cell::new(self.name, parameters);
        for (contender, turns) in self.contenders.iter().zip(&self.turns) {
            let name = contender.name;
            cell.add(name.word(), name == Name::Nowait, turns);
        }
        let best = cell.best("files_per_s", |contender| !contender.ours);
        let best = best.map(|contender| contender.name.clone());
        cell.parameters.insert("best".into(), json!(best));
        let best = best.unwrap_or_default();
        cell.compare(&COMPARED, std::slice::from_ref(&best));
        let title = format!("{}: {files} files, {}, {words}", self.name, Size(bytes));
        let table = Table::of(&title, &cell, &best, "", &COLUMNS);
        (cell, table)
    }
}

/// The results of all tables.
pub fn run(machine: Machine, settings: Value, results: &[Results]) -> Run {
    let mut run = Run::new("tools", machine, settings);
    for (cell, table) in results.iter().map(Results::cell) {
        if !cell.contenders.is_empty() {
            run.cells.push(cell);
            run.tables.push(table);
        }
    }
    run
}
