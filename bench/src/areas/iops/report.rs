//! The results: the tables of the patches of 2019, with the processor time of an operation and ratios.

use serde_json::{Value, json};

use super::contender::Name;
use super::{Bench, Table};
use crate::harness::machine::Machine;
use crate::harness::plot::{Axis, Chart, Line, Stroke};
use crate::harness::run::{Absent, Cell, Run};
use crate::harness::table::{self, Entry};
use crate::harness::text::digits;
use nowait_cli::size::Size;

/// The figures whose ratios are taken.
const COMPARED: [&str; 4] = ["ops_per_s", "cpu_us_per_op", "lat_us/p50", "lat_us/p99"];

/// The results of all cells, with a table and a chart for each of the tables of 2019.
pub fn run(bench: &Bench<'_>, machine: Machine, settings: Value) -> Run {
    let mut run = Run::new("iops", machine, settings);
    run.interrupted = bench.stop.asked();
    bench.notes.iter().for_each(|note| run.note(note));
    let mut tables: Vec<(Table, Vec<Cell>)> = Vec::new();
    for cell in &bench.cells {
        let is_new = tables.last().is_none_or(|(table, _)| *table != cell.table);
        if is_new {
            tables.push((cell.table, Vec::new()));
        }
        if let Some((_, cells)) = tables.last_mut() {
            cells.push(results(cell, bench, is_new));
        }
    }
    for (table, cells) in tables {
        run.tables.push(rows(table, &cells));
        if cells.len() > 1 {
            run.charts.push(chart(table, &cells, &run.machine));
        }
        run.cells.extend(cells);
    }
    run
}

/// The results of one cell. The first cell of a table has the contenders that cannot take part.
fn results(cell: &super::Cell, bench: &Bench<'_>, is_first: bool) -> Cell {
    let files = bench.ground.files_for(cell.block, cell.table.per_core());
    let parameters = json!({
        "table": cell.table,
        "block": cell.block,
        "devices": files.paths.len(),
        "depth": cell.depth,
    });
    let absent = bench.absent.iter();
    let absent = absent.filter(|(table, _)| is_first && *table == cell.table);
    let name = format!("{}-{}", cell.table.word(), cell.depth);
    let mut results = Cell::new(name, parameters);
    results.absent = absent
        .map(|(_, (name, why))| Absent {
            name: name.word().into(),
            why: why.clone(),
        })
        .collect();
    for (i, rounds) in cell.contenders.iter().zip(&cell.rounds) {
        let name = bench.contenders[*i].name;
        results.add(name.word(), name.is_ours(), rounds);
    }
    let bases = [Name::Libaio, Name::FioLibaio].map(|name| name.word().to_owned());
    results.compare(&COMPARED, &bases);
    results
}

/// The rows of one table: by interface, then by depth, as in 2019.
fn rows(table: Table, cells: &[Cell]) -> table::Table {
    let parameter = |key: &str| cells[0].parameters[key].as_u64().unwrap_or(0);
    let devices = match parameter("devices") {
        1 => String::new(),
        n => format!(", {n} files or devices, one thread on one core"),
    };
    let mut rows = Vec::new();
    for name in <Name as clap::ValueEnum>::value_variants() {
        for cell in cells {
            let Some(contender) = cell.contender(name.word()) else {
                continue;
            };
            let figure = |figure: &str, scale: f64, unit: &str| -> Entry {
                let figure = contender.figure(figure);
                figure
                    .map_or("-".into(), |x| digits(x * scale) + unit)
                    .into()
            };
            let latency = match table.per_core() {
                true => "-".into(),
                false => figure("lat_us/p50", 1.0, "us"),
            };
            let ratio = |base: Option<Name>| {
                let base = base.and_then(|base| cell.ratio(name.word(), base.word(), "ops_per_s"));
                Entry::ratio(base, true)
            };
            let depth = cell.parameters["depth"].as_u64().unwrap_or(0) as usize;
            rows.push(vec![
                name.word().into(),
                name.depth(depth).to_string().into(),
                u8::from(name.polled()).to_string().into(),
                latency,
                figure("ops_per_s", 1e-3, "K"),
                figure("cpu_us_per_op", 1.0, "us"),
                ratio(Some(Name::Libaio)),
                ratio(name.beside()),
            ]);
        }
    }
    let columns = [
        "",
        "QD",
        "Polled",
        "Latency",
        "IOPS",
        "CPU",
        "x libaio",
        "x fio, same options",
    ];
    table::Table {
        title: format!(
            "{}, {} random{devices}",
            table.word(),
            Size(parameter("block"))
        ),
        columns: columns.map(str::to_owned).into(),
        rows,
        ..table::Table::default()
    }
}

/// Operations per second at each depth.
fn chart(table: Table, cells: &[Cell], machine: &Machine) -> Chart {
    let names = <Name as clap::ValueEnum>::value_variants().iter();
    let line = |name: &Name| {
        let point = |cell: &Cell| {
            let rate = cell.contender(name.word())?.figure("ops_per_s")?;
            Some((cell.parameters["depth"].as_f64()?, rate / 1e3))
        };
        Line {
            name: name.word().into(),
            points: cells.iter().filter_map(point).collect(),
            stroke: match name.is_ours() {
                true => Stroke::Solid,
                false => Stroke::Dashed,
            },
        }
    };
    Chart {
        name: format!("iops-{}", table.word()),
        title: format!("Operations per second, {}", table.word()),
        subtitle: machine.to_string(),
        x: Axis {
            label: "operations in flight".into(),
            log: true,
        },
        y: Axis {
            label: "thousand operations per second".into(),
            log: false,
        },
        lines: names
            .map(line)
            .filter(|line| line.points.len() > 1)
            .collect(),
        marks: Vec::new(),
    }
}
