//! The results: a cell with plain files and memory, one with registered ones, and a table of each figure.

use serde_json::json;

use super::contender::Name;
use super::{Args, Cell};
use crate::harness::run::{self, Run, more_is_better};
use crate::harness::table::{Entry, Table};

/// The figures whose ratios are taken.
const COMPARED: [&str; 2] = ["ops_per_s", "cpu_us_per_op"];

/// Adds the cells and their tables.
pub fn add(run: &mut Run, args: &Args, files: usize, cells: &[Cell]) {
    run.cells = cells
        .iter()
        .map(|cell| results(args, files, cell))
        .collect();
    run.tables = vec![
        table("kops/s", "ops_per_s", 1e-3, &run.cells),
        table("CPU us/op", "cpu_us_per_op", 1.0, &run.cells),
    ];
}

fn results(args: &Args, files: usize, cell: &Cell) -> run::Cell {
    let parameters = json!({
        "registered": cell.registered,
        "files": files,
        "block": args.block.0,
        "depth": args.depth,
        "batch": args.batch(),
    });
    let mut results = run::Cell::new(cell.word(), parameters);
    for (name, rounds) in &cell.contenders {
        results.add(name.word(), *name == Name::Nowait, rounds);
    }
    results.compare(&COMPARED, &[Name::IoUring.word().to_owned()]);
    results
}

/// A row for each cell: the figure of each contender, then its ratios.
fn table(title: &str, figure: &str, scale: f64, cells: &[run::Cell]) -> Table {
    let first = &cells[0];
    let names: Vec<&String> = first.contenders.iter().map(|c| &c.name).collect();
    let ratios: Vec<&String> = first.ratios.keys().collect();
    let row = |cell: &run::Cell| {
        let mut row = vec![Entry::from(cell.name.as_str())];
        for name in &names {
            let figure = cell.contender(name).and_then(|c| c.figure(figure));
            row.push(Entry::figure(figure.map(|x| x * scale)));
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
