//! The results: the tables of the patches of 2019, with the processor time of an operation and
//! ratios.

use clap::ValueEnum;

use super::contender::Name;
use crate::harness::cell::Cell;
use crate::harness::contender::{Named, Word};
use crate::harness::machine::Machine;
use crate::harness::plot::{Axis, Chart, Line};
use crate::harness::run::Run;
use crate::harness::table::{Entry, Table};
use crate::harness::text::digits;
use nowait_cli::size::Size;

const COMPARED: [&str; 4] = ["ops_per_s", "cpu_us_per_op", "lat_us/p50", "lat_us/p99"];

/// Adds the cells, with a table and a chart for each of the tables of 2019.
pub fn complete(mut run: Run, mut cells: Vec<Cell>) -> Run {
    let bases = [Name::Libaio, Name::FioLibaio].map(|name| name.word());
    let bases = [&*bases[0], &*bases[1]];
    cells
        .iter_mut()
        .for_each(|cell| cell.compare(&COMPARED, &bases));
    for cells in cells.chunk_by(|a, b| a.parameters["table"] == b.parameters["table"]) {
        let table = cells[0].parameters["table"].as_str().unwrap_or_default();
        run.tables.push(rows(table, cells));
        if cells.len() > 1 {
            run.charts.push(chart(table, cells, &run.machine));
        }
    }
    run.cells = cells;
    run
}

/// The rows of one table: by interface, then by depth, as in 2019.
fn rows(table: &str, cells: &[Cell]) -> Table {
    let parameter = |key: &str| cells[0].parameters[key].as_u64().unwrap_or(0);
    let devices = match parameter("devices") {
        1 => String::new(),
        n => format!(", {n} files or devices, one thread on one core"),
    };
    let mut rows = Vec::new();
    for name in Name::value_variants() {
        for cell in cells {
            let Some(contender) = cell.contender(&name.word()) else {
                continue;
            };
            let figure = |figure: &str, scale: f64, unit: &str| -> Entry {
                let figure = contender.figure(figure);
                figure
                    .map_or("-".into(), |x| digits(x * scale) + unit)
                    .into()
            };
            let latency = match table == "per-core" {
                true => "-".into(),
                false => figure("lat_us/p50", 1.0, "us"),
            };
            let ratio = |base: Option<Name>| {
                let base =
                    base.and_then(|base| cell.ratio(&name.word(), &base.word(), "ops_per_s"));
                Entry::ratio(base, true)
            };
            let depth = cell.parameters["depth"].as_u64().unwrap_or(0) as usize;
            rows.push(vec![
                name.word().into(),
                name.depth(depth).to_string().into(),
                latency,
                figure("ops_per_s", 1e-3, "K"),
                figure("cpu_us_per_op", 1.0, "us"),
                ratio(Some(Name::Libaio)),
                ratio(name.beside()),
            ]);
        }
    }
    let columns = [
        "QD",
        "Latency",
        "IOPS",
        "CPU",
        "x libaio",
        "x fio, same options",
    ];
    let title = format!("{table}, {} random{devices}", Size(parameter("block")));
    Table::new(title, columns, rows)
}

/// Operations per second at each depth.
fn chart(table: &str, cells: &[Cell], machine: &Machine) -> Chart {
    let line = |name: &Name| {
        let point = |cell: &Cell| {
            let rate = cell.contender(&name.word())?.figure("ops_per_s")?;
            Some((cell.parameters["depth"].as_f64()?, rate / 1e3))
        };
        let points = cells.iter().filter_map(point).collect();
        Line::new(&name.word(), points, Named::is_ours(name))
    };
    let lines = Name::value_variants().iter().map(line);
    Chart {
        name: format!("iops-{table}"),
        title: format!("Operations per second, {table}"),
        subtitle: machine.to_string(),
        x: Axis::log("operations in flight"),
        y: Axis::linear("thousand operations per second"),
        lines: lines.filter(|line| line.points.len() > 1).collect(),
        marks: Vec::new(),
    }
}
