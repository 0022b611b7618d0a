//! The results: a cell for each work, and a table of each figure.

use serde_json::{Value, json};

use super::contender::Name;
use super::{Args, Cell};
use crate::harness::machine::Machine;
use crate::harness::run::{self, Run, more_is_better};
use crate::harness::table::{Entry, Table};

/// The figures whose ratios are taken.
const COMPARED: [&str; 2] = ["ops_per_s", "cpu_us_per_op"];

/// The results of all cells, with their tables.
pub fn run(machine: Machine, settings: Value, args: &Args, cells: &[Cell]) -> Run {
    let mut run = Run::new("object-store", machine, settings);
    run.cells = cells.iter().map(|cell| results(args, cell)).collect();
    run.tables = vec![
        table("operations/s", "ops_per_s", &run.cells),
        table("CPU us/op", "cpu_us_per_op", &run.cells),
    ];
    run
}

fn results(args: &Args, cell: &Cell) -> run::Cell {
    let work = cell.work;
    let parameters = json!({
        "tasks": work.tasks(),
        "block": work.block(),
        "ranges": work.ranges(),
        "cold": work.is_cold(),
        "threads": args.threads,
    });
    let mut results = run::Cell::new(work.word(), parameters);
    for (name, rounds) in &cell.contenders {
        results.add(name.word(), name.is_ours(), rounds);
    }
    results.compare(&COMPARED, &[Name::Local.word().to_owned()]);
    results
}

/// A row for each cell: the figure of each contender, then its ratios.
fn table(title: &str, figure: &str, cells: &[run::Cell]) -> Table {
    let first = &cells[0];
    let names: Vec<&String> = first.contenders.iter().map(|c| &c.name).collect();
    let ratios: Vec<&String> = first.ratios.keys().collect();
    let row = |cell: &run::Cell| {
        let mut row = vec![Entry::from(cell.name.as_str())];
        for name in &names {
            let figure = cell.contender(name).and_then(|c| c.figure(figure));
            row.push(Entry::figure(figure));
        }
        for ratio in &ratios {
            let ratio = cell.ratios.get(*ratio);
            let interval = ratio.and_then(|ratio| ratio.figures.get(figure).copied());
            row.push(Entry::ratio(interval, more_is_better(figure)));
        }
        row
    };
    Table {
        title: title.into(),
        columns: std::iter::once(String::new())
            .chain(names.iter().chain(&ratios).map(|name| (*name).clone()))
            .collect(),
        rows: cells.iter().map(row).collect(),
        ..Table::default()
    }
}
