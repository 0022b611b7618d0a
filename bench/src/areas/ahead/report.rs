//! The results: a table for each program and tree.

use nowait_cli::problem::Problem;
use serde::Serialize;
use serde_json::{Value, json};

use super::contender::Name;
use super::workload::{Program, Tree};
use crate::harness::child::Ended;
use crate::harness::column::Column;
use crate::harness::machine::Machine;
use crate::harness::run::{Cell, Run};
use crate::harness::table::Table;

/// The figures whose ratios are taken.
const COMPARED: [&str; 3] = ["files_per_s", "seconds", "cpu_s"];

/// The columns of the tables.
const COLUMNS: [Column; 6] = [
    Column::Median("ms", "seconds", 1e3),
    Column::Range("seconds", 1e3),
    Column::Median("CPU ms", "cpu_s", 1e3),
    Column::Whole("reads", "reads"),
    Column::Ratio("", "files_per_s"),
    Column::Short("CPU", "cpu_s"),
];

/// One turn of a contender.
#[derive(Clone, Debug, Serialize)]
pub struct Turn {
    seconds: f64,
    files_per_s: f64,
    cpu_s: f64,
    /// The requests of a slow disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    reads: Option<u64>,
}

/// The turns of all contenders with one program and tree.
pub struct Results {
    pub program: Program,
    pub tree: Tree,
    pub contenders: Vec<Name>,
    files: u64,
    turns: Vec<Vec<Turn>>,
}

impl Results {
    /// An error if no contender takes part.
    pub fn new(program: Program, tree: Tree, files: u64, all: &[Name]) -> Result<Results, Problem> {
        let does = |name: &Name| name.does(program);
        let contenders: Vec<Name> = all.iter().copied().filter(does).collect();
        if contenders.is_empty() {
            return Err(Problem::Usage(format!(
                "no contender takes part with {}: choose direct, or leave the program out",
                program.word()
            )));
        }
        Ok(Results {
            program,
            tree,
            files: tree.counts(files).0,
            turns: vec![Vec::new(); contenders.len()],
            contenders,
        })
    }

    /// Adds a contender's next turn.
    pub fn add(&mut self, contender: usize, ended: &Ended, reads: Option<u64>) {
        self.turns[contender].push(Turn {
            seconds: ended.seconds,
            files_per_s: self.files as f64 / ended.seconds.max(1e-9),
            cpu_s: ended.used.cpu(),
            reads,
        });
    }

    fn name(&self) -> String {
        format!("{}-{}", self.program.word(), self.tree.word())
    }

    fn cell(&self) -> Cell {
        let parameters = json!({
            "program": self.program,
            "tree": self.tree,
            "files": self.files,
        });
        let mut cell = Cell::new(self.name(), parameters);
        for (name, turns) in self.contenders.iter().zip(&self.turns) {
            cell.add(name.word(), name.is_ours(), turns);
        }
        cell.compare(&COMPARED, &[Name::Direct.word().into()]);
        cell
    }

    fn title(&self) -> String {
        let (files, directories) = (self.files, self.tree.counts(self.files).1);
        let directories = match directories {
            1 => "one directory".to_owned(),
            more => format!("{more} directories"),
        };
        format!("{}: {files} files in {directories}", self.program.word())
    }
}

/// The results of all programs.
pub fn run(machine: Machine, settings: Value, results: &[Results]) -> Run {
    let mut run = Run::new("ahead", machine, settings);
    for results in results {
        let cell = results.cell();
        if !cell.contenders.is_empty() {
            let table = Table::of(&results.title(), &cell, Name::Direct.word(), "", &COLUMNS);
            run.tables.push(table);
            run.cells.push(cell);
        }
    }
    run
}
