//! The results: a cell for each number of cold connections, a table of each class, and charts of
//! latencies.

use super::load::Class;
use crate::harness::cell::Cell;
use crate::harness::column::Column;
use crate::harness::latencies;
use crate::harness::run::Run;
use crate::harness::table::Table;

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

/// Adds a cell, with its tables and charts. Its title has the numbers of hot and of cold
/// connections.
pub fn add(run: &mut Run, mut cell: Cell) {
    cell.compare(&COMPARED, &[]);
    let has = |figure: &str| cell.contenders.iter().any(|c| c.figure(figure).is_some());
    let title = |requests: &str| format!("{requests} {}", cell.title);
    for word in Class::ALL.map(Class::word) {
        let class = format!("classes/{word}/");
        if has(&format!("{class}ops")) {
            let title = title(word);
            run.tables
                .push(Table::of(&title, &cell, "", &class, &OF_CLASS));
            let (name, title) = (
                format!("server-{}-{word}", cell.name),
                format!("Latency of a file: {title}"),
            );
            let chart = latencies::chart(name, title, "request", &run.machine, &cell, &class);
            run.charts.extend(chart);
        }
    }
    run.tables
        .push(Table::of(&title("all"), &cell, "", "", &OF_SERVER));
    if has("p99_beside_cold/hot") {
        run.tables
            .push(Table::of(&title("beside cold"), &cell, "", "", &BESIDE));
    }
    run.cells.push(cell);
}
