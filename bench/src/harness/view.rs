//! The tables of areas that read files: their columns, and the contender that is the base of
//! ratios.

use super::cell::Cell;
use super::column::Column;
use super::table::Table;

/// A table of each cell.
pub struct View {
    /// The class of a mix that it shows.
    class: Option<&'static str>,
    /// The base of ratios is the first of these that takes part; if the list is empty, the fastest
    /// contender. `None`: the bases of the plan.
    bases: Option<&'static [&'static str]>,
    columns: &'static [Column],
}

const RATE: Column = Column::Median("kops/s", "ops_per_s", 1e-3);
const RANGE: Column = Column::Range("ops_per_s", 1e-3);
const MEGABYTES: Column = Column::Median("MB/s", "mb_per_s", 1.0);
const CPU: Column = Column::Median("CPU us/op", "cpu_us_per_op", 1.0);
const PERCENT: Column = Column::Whole("CPU %", "cpu_percent");
const P50: Column = Column::Median("p50 us", "lat_us/p50", 1.0);
const P99: Column = Column::Median("p99 us", "lat_us/p99", 1.0);
const P999: Column = Column::Median("p99.9 us", "lat_us/p999", 1.0);
const STALL: Column = Column::Median("stall99", "stall_us/p99", 1.0);
const FASTER: Column = Column::Ratio("", "ops_per_s");

impl View {
    /// The main figures of reads that wait for a device.
    pub const DEVICE: View = View::plain(&[
        RATE,
        RANGE,
        CPU,
        PERCENT,
        P50,
        P99,
        STALL,
        Column::Median("cs/op", "switches_per_op", 1.0),
        FASTER,
    ]);

    /// The main figures of reads that do not wait.
    pub const MEMORY: View = View::plain(&[
        RATE,
        RANGE,
        CPU,
        PERCENT,
        P50,
        P99,
        STALL,
        FASTER,
        Column::Short("CPU", "cpu_us_per_op"),
    ]);

    /// The cost of one read.
    pub const EACH: View = View::plain(&[
        Column::Median("us/op", "us_per_op", 1.0),
        CPU,
        P50,
        P99,
        STALL,
        Column::Median("hit %", "hits_percent", 1.0),
        FASTER,
        Column::Short("CPU", "cpu_us_per_op"),
    ]);

    /// The figures of time(1), and rare latencies.
    pub const TIMES: View = View::plain(&[
        Column::Median("real s", "seconds", 1.0),
        Column::Median("user s", "user_s", 1.0),
        Column::Median("sys s", "sys_s", 1.0),
        Column::Whole("vol cs", "switches_voluntary"),
        Column::Whole("invol cs", "switches_involuntary"),
        P999,
        Column::Median("max us", "lat_us/max", 1.0),
        Column::Median("stall max", "stall_us/max", 1.0),
        Column::Ratio("CPU", "cpu_us_per_op"),
    ]);

    /// All classes of a mix together.
    pub const TOTAL: View = View::plain(&[
        RATE, RANGE, MEGABYTES, CPU, PERCENT, P50, P99, STALL, FASTER,
    ]);

    /// The class of a mix that is mostly cached.
    pub const F1: View = View::class("f1", &["pool"]);
    /// The class of a mix that is mostly not cached.
    pub const F2: View = View::class("f2", &["ring"]);
    /// The sequential class of a mix.
    pub const F3: View = View::class("f3", &[]);

    const fn plain(columns: &'static [Column]) -> View {
        View {
            class: None,
            bases: None,
            columns,
        }
    }

    const fn class(class: &'static str, bases: &'static [&'static str]) -> View {
        View {
            class: Some(class),
            bases: Some(bases),
            columns: &[
                MEGABYTES,
                Column::Median("hits %", "hits", 100.0),
                Column::Median("book %", "booked", 100.0),
                Column::Median("<20us %", "under_20us", 100.0),
                P50,
                P99,
                P999,
                Column::Median("hit p99", "booked_lat_us/p99", 1.0),
                Column::Ratio("p99", "lat_us/p99"),
            ],
        }
    }

    /// The figures whose ratios a cell needs for all views.
    pub fn compared(cell: &Cell) -> Vec<String> {
        let mut figures: Vec<String> = ["ops_per_s", "cpu_us_per_op", "lat_us/p50", "lat_us/p99"]
            .map(str::to_owned)
            .into();
        let classes = cell
            .contenders
            .first()
            .and_then(|c| c.median["classes"].as_object());
        for class in classes.into_iter().flat_map(|all| all.keys()) {
            let of_class = ["ops_per_s", "lat_us/p50", "lat_us/p99"];
            figures.extend(of_class.map(|figure| format!("classes/{class}/{figure}")));
        }
        figures
    }

    /// The base of the ratios in a cell.
    pub fn base<'a>(&self, cell: &'a Cell, bases: &[&str]) -> &'a str {
        let bases = self.bases.unwrap_or(bases);
        let named = || bases.iter().find_map(|base| cell.contender(base));
        let fastest = || cell.best("ops_per_s", |_| true);
        let first = || cell.contenders.first();
        let found = match bases {
            [] => fastest(),
            _ => named().or_else(first),
        };
        found.map_or("", |contender| contender.name.as_str())
    }

    /// The table of a cell; `None` of a class without reads.
    pub fn table(&self, cell: &Cell, bases: &[&str]) -> Option<Table> {
        let (title, prefix) = match self.class {
            Some(class) => (class, format!("classes/{class}/")),
            None => (cell.title.as_str(), String::new()),
        };
        let ops = format!("{prefix}ops");
        let read = |c: &super::cell::Contender| c.figure(&ops).is_some_and(|ops| ops > 0.0);
        let base = self.base(cell, bases);
        cell.contenders
            .iter()
            .any(read)
            .then(|| Table::of(title, cell, base, &prefix, self.columns))
    }
}
