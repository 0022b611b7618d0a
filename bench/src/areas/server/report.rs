//! The results: a cell for each number of cold connections, a table of each class, and charts of latencies.

use serde_json::{Value, json};

use super::Args;
use super::contender::Name;
use super::load::Class;
use super::round::Round;
use crate::harness::column::Column;
use crate::harness::latencies;
use crate::harness::machine::Machine;
use crate::harness::plot::Chart;
use crate::harness::run::{self, Run};
use crate::harness::table::Table;

/// The figures whose ratios are taken.
const COMPARED: [&str; 16] = [
    "ops_per_s",
    "cpu_us_per_op",
    "tick_us/p99",
    "classes/hot/ops_per_s",
    "classes/hot/lat_us/p50",
    "classes/hot/lat_us/p99",
    "classes/hot/lat_us/p999",
    "classes/cold/ops_per_s",
    "classes/cold/lat_us/p50",
    "classes/cold/lat_us/p99",
    "classes/cold/lat_us/p999",
    "classes/api/ops_per_s",
    "classes/api/lat_us/p50",
    "classes/api/lat_us/p99",
    "p99_beside_cold/hot",
    "p99_beside_cold/api",
];

/// The table of a class. The ratios are those of nowait to the contender of the row.
const OF_CLASS: [Column; 7] = [
    Column::Median("req/s", "ops_per_s", 1.0),
    Column::Median("p50 us", "lat_us/p50", 1.0),
    Column::Median("p99 us", "lat_us/p99", 1.0),
    Column::Median("p99.9", "lat_us/p999", 1.0),
    Column::Median("max", "lat_us/max", 1.0),
    Column::Inverse("req/s ratio", "nowait", "ops_per_s"),
    Column::Inverse("p99 ratio", "nowait", "lat_us/p99"),
];

/// The table of the server.
const OF_SERVER: [Column; 6] = [
    Column::Median("MB/s", "mb_per_s", 1.0),
    Column::Median("CPU us/req", "cpu_us_per_op", 1.0),
    Column::Median("tick p99 us", "tick_us/p99", 1.0),
    Column::Median("max", "tick_us/max", 1.0),
    Column::Inverse("CPU ratio", "nowait", "cpu_us_per_op"),
    Column::Inverse("tick ratio", "nowait", "tick_us/p99"),
];

/// The table of `--paced`.
const BESIDE: [Column; 2] = [
    Column::Median("hot p99 x", "p99_beside_cold/hot", 1.0),
    Column::Median("api p99 x", "p99_beside_cold/api", 1.0),
];

/// The rounds of all contenders with one number of cold connections.
pub struct Cell {
    pub cold: u32,
    pub contenders: Vec<(Name, Vec<Round>)>,
}

impl Cell {
    /// The name in the results, for example `hot-8-cold-32`.
    pub fn name(&self, args: &Args) -> String {
        format!("hot-{}-cold-{}", args.hot, self.cold)
    }

    /// The title of a table of these requests, for example `hot (8 + 32)`.
    fn title(&self, requests: &str, args: &Args) -> String {
        format!("{requests} ({} + {})", args.hot, self.cold)
    }

    fn results(&self, args: &Args) -> run::Cell {
        let parameters = json!({
            "hot_connections": args.hot,
            "cold_connections": self.cold,
            "threads": args.threads,
            "block": args.size.0,
        });
        let mut results = run::Cell::new(self.name(args), parameters);
        for (name, rounds) in &self.contenders {
            results.add(name.word(), name.is_ours(), rounds);
        }
        results.compare(&COMPARED, &[]);
        results
    }
}

/// The results of all cells, with their tables and charts.
pub fn run(machine: Machine, settings: Value, args: &Args, cells: &[Cell]) -> Run {
    let mut run = Run::new("server", machine, settings);
    for cell in cells {
        let results = cell.results(args);
        if results.contenders.is_empty() {
            continue;
        }
        for requests in Class::ALL {
            let class = format!("classes/{}/", requests.word());
            let figure = format!("{class}ops");
            if results
                .contenders
                .iter()
                .any(|c| c.figure(&figure).is_some())
            {
                let title = cell.title(requests.word(), args);
                let table = Table::of(&title, &results, "", &class, &OF_CLASS);
                run.tables.push(table);
                run.charts.extend(chart(&run.machine, cell, requests, args));
            }
        }
        let title = cell.title("all", args);
        run.tables
            .push(Table::of(&title, &results, "", "", &OF_SERVER));
        if args.paced && cell.cold > 0 {
            let title = cell.title("beside cold", args);
            run.tables
                .push(Table::of(&title, &results, "", "", &BESIDE));
        }
        run.cells.push(results);
    }
    run
}

/// The percentiles of one class.
fn chart(machine: &Machine, cell: &Cell, requests: Class, args: &Args) -> Option<Chart> {
    let word = requests.word();
    let line = |(name, rounds): &(Name, Vec<Round>)| {
        let classes = rounds.iter().filter_map(|round| round.classes.get(word));
        let rounds = classes.filter_map(|class| Some((class.ops, class.lat_us?)));
        latencies::line(name.word(), name.is_ours(), &rounds.collect::<Vec<_>>())
    };
    latencies::chart(
        format!("server-{}-{word}", cell.name(args)),
        format!("Latency of a file: {}", cell.title(word, args)),
        "request",
        machine,
        cell.contenders.iter().map(line).collect(),
    )
}
