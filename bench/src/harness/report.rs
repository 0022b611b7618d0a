//! What a bench prints: one JSON object, or tables for people.
//!
//! # The JSON shape, the same for every bench (keys may be added)
//! ```text
//! {
//!   "bench": "randread" | "cached" | "mix" | …,
//!   "version": "0.1.0",               of nowait
//!   "machine": {"kernel", "arch", "cores", "filesystem", "device", "read_ahead_kb", …},
//!   "settings": {…},                  every option, how the cache was put into its state, in what
//!                                     order contenders took turns, what the intervals are
//!   "interrupted": bool,              Ctrl-C: what was measured until then is here
//!   "notes": [string],                what a reader should know of this run
//!   "contenders": [{
//!     "name",                         a stable word
//!     "block", "threads", "order", "rate",   where the bench has several
//!     "rounds": [ROUND],
//!     "median": ROUND,                each figure's median over the rounds
//!     "spread": {"ops_per_s", "cpu_us_per_op"}     smallest and largest
//!   }],
//!   "ratios": {"A/B": {"median", "low95", "high95",   of ops_per_s, paired by round
//!                      "cpu": {"median", "low95", "high95"},   of cpu_us_per_op
//!                      "rounds", "coverage"}}         of the interval; "A/B@BLOCKxTHREADS"
//!                                                     where the bench has several
//! }
//! ROUND = {"ops", "seconds", "ops_per_s", "mb_per_s", "user_s", "sys_s", "cpu_percent",
//!          "cpu_us_per_op", "switches_voluntary", "switches_involuntary", "switches_per_op",
//!          "lat_us": {"p50", "p90", "p99", "p999", "max"},
//!          "stall_us": {…} | null,    how long a call that promises not to block kept its caller
//!          "hits_percent",            reads that came whole from the page cache, where known
//!          "engine": {…},             what nowait's engine counted, where there is one
//!          "classes": {"f1": CLASS, "f2": CLASS, "f3": CLASS}}    of a mix
//! CLASS = {"ops", "ops_per_s", "mb_per_s",
//!          "hits": 0 to 1 | null,     that the page cache served, by the contender's own account
//!          "booked": 0 to 1 | null,   whose blocks were there by the bench's book
//!          "under_20us": 0 to 1, "lat_us": {…} | null,
//!          "booked_lat_us": {…} | null,      of the reads in the book
//!          "buckets": {"usec": {"2": %, …, "1000": %}, "msec": {"2": %, …, ">=2000": %}}}
//! Ratios of a mix have "classes": {"f1": {"median", "low95", "high95",     of ops_per_s
//!          "p50": {…}, "p99": {…}}, …}                                     of latencies
//! ```
//! `hitrate` adds keys: see [`super::hitrate`]. `syscalls` and `race` have no contenders: see
//! [`super::syscalls`] and [`super::race::AFTER`].

use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::class::as_fio;
use super::contender::Label;
use super::draws::CLASSES;
use super::files::Files;
use super::machine::Machine;
use super::offsets::Order;
use super::plan::Plan;
use super::ratio;
use super::ratio::Ratio;
use super::round::{Round, median, spread};
use super::settings::Amount;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::terminal::Terminal;

/// All that came of a bench.
#[derive(Serialize)]
pub struct Report {
    bench: &'static str,
    version: &'static str,
    machine: Machine,
    settings: Value,
    interrupted: bool,
    notes: Vec<String>,
    contenders: Vec<Entry>,
    ratios: Map<String, Value>,
    #[serde(flatten)]
    findings: Map<String, Value>,
    /// The findings for people.
    #[serde(skip)]
    found: String,
    #[serde(skip)]
    bases: &'static [&'static str],
    #[serde(skip)]
    tables: &'static [Table],
}

/// One contender in one cell.
#[derive(Serialize)]
struct Entry {
    name: &'static str,
    #[serde(flatten)]
    label: Label,
    rounds: Vec<Round>,
    median: Value,
    spread: Value,
}

/// One table: what it shows of each contender.
pub struct Table {
    /// The class that it is of, in a mix.
    class: Option<&'static str>,
    /// What it compares with, where that is not what the bench's other tables do.
    bases: Option<&'static [&'static str]>,
    columns: &'static [Column],
    /// Also the range of the first column over the rounds.
    spread: bool,
    ratios: &'static [Compared],
}

/// One column: what it shows of a contender's medians.
struct Column {
    title: &'static str,
    width: usize,
    show: fn(&Value) -> String,
}

/// A ratio that a table shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// Of operations per second, with its range.
    Rate,
    /// Of processor time per operation, with its range.
    Cpu,
    /// The same without.
    CpuShort,
    /// Of a class's 99th percentile, with its range.
    P99,
}

impl Table {
    /// The figures that decide, of work that waits for a device.
    pub const DEVICE: Table = Table {
        class: None,
        bases: None,
        columns: &[
            RATE,
            CPU,
            PERCENT,
            P50,
            P99,
            STALL,
            Column::new("cs/op", 6, |m| figure(m, "/switches_per_op", 1.0)),
        ],
        spread: true,
        ratios: &[Compared::Rate],
    };

    /// The figures that decide, of work that waits for nothing.
    pub const MEMORY: Table = Table {
        class: None,
        bases: None,
        columns: &[RATE, CPU, PERCENT, P50, P99, STALL],
        spread: true,
        ratios: &[Compared::Rate, Compared::CpuShort],
    };

    /// The cost of one read.
    pub const EACH: Table = Table {
        class: None,
        bases: None,
        columns: &[
            Column::new("us/op", 9, |m| {
                let rate = m["ops_per_s"].as_f64().unwrap_or_default();
                digits(1e6 / rate.max(1e-9))
            }),
            CPU,
            P50,
            P99,
            STALL,
            Column::new("hit %", 7, |m| figure(m, "/hits_percent", 1.0)),
        ],
        spread: false,
        ratios: &[Compared::Rate, Compared::CpuShort],
    };

    /// The figures of time(1), as the original test gave them, and what is rare.
    pub const TIMES: Table = Table {
        class: None,
        bases: None,
        columns: &[
            Column::new("real s", 8, |m| figure(m, "/seconds", 1.0)),
            Column::new("user s", 7, |m| figure(m, "/user_s", 1.0)),
            Column::new("sys s", 7, |m| figure(m, "/sys_s", 1.0)),
            Column::new("vol cs", 8, |m| whole(m, "/switches_voluntary")),
            Column::new("invol cs", 9, |m| whole(m, "/switches_involuntary")),
            Column::new("p99.9 us", 9, |m| figure(m, "/lat_us/p999", 1.0)),
            Column::new("max us", 8, |m| figure(m, "/lat_us/max", 1.0)),
            Column::new("stall max", 10, |m| figure(m, "/stall_us/max", 1.0)),
        ],
        spread: false,
        ratios: &[Compared::Cpu],
    };

    /// All classes of a mix together.
    pub const TOTAL: Table = Table {
        class: None,
        bases: None,
        columns: &[RATE, MEGABYTES, CPU, PERCENT, P50, P99, STALL],
        spread: true,
        ratios: &[Compared::Rate],
    };

    /// The classes of a mix: what is cached must not wait, what is not must be no slower than on
    /// a ring, and what is sequential no slower than on the fastest.
    pub const F1: Table = Table::class("f1", &["pool"]);
    pub const F2: Table = Table::class("f2", &["ring"]);
    pub const F3: Table = Table::class("f3", &[]);

    const fn class(class: &'static str, bases: &'static [&'static str]) -> Table {
        Table {
            class: Some(class),
            bases: Some(bases),
            columns: CLASS,
            spread: false,
            ratios: &[Compared::P99],
        }
    }
}

const CLASS: &[Column] = &[
    MEGABYTES,
    Column::new("hits %", 8, |m| figure(m, "/hits", 100.0)),
    Column::new("book %", 8, |m| figure(m, "/booked", 100.0)),
    Column::new("<20us %", 9, |m| figure(m, "/under_20us", 100.0)),
    P50,
    P99,
    Column::new("p99.9 us", 9, |m| figure(m, "/lat_us/p999", 1.0)),
    Column::new("hit p99", 9, |m| figure(m, "/booked_lat_us/p99", 1.0)),
];
const RATE: Column = Column::new("kops/s", 8, |m| figure(m, "/ops_per_s", 1e-3));
const MEGABYTES: Column = Column::new("MB/s", 7, |m| figure(m, "/mb_per_s", 1.0));
const CPU: Column = Column::new("CPU us/op", 10, |m| figure(m, "/cpu_us_per_op", 1.0));
const PERCENT: Column = Column::new("CPU %", 6, |m| whole(m, "/cpu_percent"));
const P50: Column = Column::new("p50 us", 8, |m| figure(m, "/lat_us/p50", 1.0));
const P99: Column = Column::new("p99 us", 8, |m| figure(m, "/lat_us/p99", 1.0));
const STALL: Column = Column::new("stall99", 8, |m| figure(m, "/stall_us/p99", 1.0));

impl Column {
    const fn new(title: &'static str, width: usize, show: fn(&Value) -> String) -> Column {
        Column { title, width, show }
    }
}

impl Compared {
    fn title(self, base: &str) -> String {
        match self {
            Compared::Rate => format!("x {base}"),
            Compared::Cpu => format!("CPU x {base}"),
            Compared::CpuShort => "CPU x".into(),
            Compared::P99 => format!("p99 x {base}"),
        }
    }

    /// Room for it, and the gap before.
    fn width(self) -> usize {
        match self {
            Compared::Rate | Compared::Cpu | Compared::P99 => 19,
            Compared::CpuShort => 5,
        }
    }

    fn show(self, ratio: &Value, paint: Paint) -> String {
        let ratio = match self {
            Compared::Rate => ratio,
            Compared::Cpu | Compared::CpuShort => &ratio["cpu"],
            Compared::P99 => &ratio["p99"],
        };
        let of = |key: &str| ratio[key].as_f64().unwrap_or_default();
        let (median, low, high) = (of("median"), of("low95"), of("high95"));
        let (median, range) = (digits(median), format!("{}-{}", digits(low), digits(high)));
        let width = self.width() - 2;
        match self {
            Compared::Rate => paint.verdict(
                &format!("{:<width$}", format!("{median} ({range})")),
                (low, high),
                1.0,
            ),
            // Less is better.
            Compared::Cpu | Compared::P99 => paint.verdict(
                &format!("{:<width$}", format!("{median} ({range})")),
                (-high, -low),
                -1.0,
            ),
            Compared::CpuShort => median,
        }
    }
}

impl Report {
    /// Puts together what was measured: `rounds[cell][contender]`.
    pub fn new(
        plan: Plan<'_>,
        files: &Files,
        machine: Machine,
        rounds: Vec<Vec<Vec<Round>>>,
        interrupted: bool,
    ) -> Report {
        let settings = settings(&plan, files);
        let mut contenders = Vec::new();
        let mut ratios = Map::new();
        for (cell, of_cell) in plan.cells.iter().zip(rounds) {
            for (a, of_a) in cell.contenders.iter().zip(&of_cell) {
                for (b, of_b) in cell.contenders.iter().zip(&of_cell) {
                    if a.name == b.name {
                        continue;
                    }
                    if let Some(ratio) = Ratio::of(of_a, of_b) {
                        ratios.insert(key(a.name, b.name, cell.label), json!(ratio));
                    }
                }
            }
            for (contender, rounds) in cell.contenders.iter().zip(of_cell) {
                if !rounds.is_empty() {
                    contenders.push(Entry::new(contender.name, cell.label, rounds));
                }
            }
        }
        Report {
            bench: plan.bench,
            version: env!("CARGO_PKG_VERSION"),
            machine,
            settings,
            interrupted,
            notes: plan.notes,
            contenders,
            ratios,
            findings: Map::new(),
            found: String::new(),
            bases: plan.bases,
            tables: plan.tables,
        }
    }

    /// With what follows from all cells together: more keys for the JSON, and text.
    pub fn with_findings(self, findings: Map<String, Value>, found: String) -> Report {
        Report {
            findings,
            found,
            ..self
        }
    }

    /// On standard output.
    pub fn print(&self, as_json: bool) -> Result<(), Problem> {
        print(self, as_json, |paint| self.tables(paint))
    }

    fn tables(&self, paint: Paint) -> String {
        let mut text = String::new();
        self.head(&mut text);
        let mut rest = &self.contenders[..];
        while let Some(first) = rest.first() {
            let n = rest.iter().take_while(|e| e.label == first.label).count();
            let (cell, more) = rest.split_at(n);
            rest = more;
            text.push('\n');
            // A class that weighs nothing has nothing to show.
            let drawn = |table: &&Table| match table.class {
                Some(class) => cell.iter().any(|entry| entry.drew(class)),
                None => true,
            };
            for table in self.tables.iter().filter(drawn) {
                self.table(&mut text, cell, table, paint);
            }
            Self::histograms(&mut text, cell, paint);
        }
        text.push_str(&self.found);
        self.foot(&mut text, paint);
        text
    }

    fn head(&self, text: &mut String) {
        let s = &self.settings;
        let word = |key: &str| s[key].as_str().unwrap_or_default().to_owned();
        let amount = match (&s["ops"], &s["seconds"]) {
            (Value::Null, seconds) => format!("{seconds} s"),
            (ops, _) => format!("{ops} reads"),
        };
        let _ = writeln!(
            text,
            "nowait-bench {} {} on {}",
            self.version, self.bench, self.machine,
        );
        let size = s["size"].as_u64().unwrap_or_default();
        let blocks: Vec<String> = s["block"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|block| Size(block.as_u64().unwrap_or_default()).to_string())
            .collect();
        let files = s["files"]["paths"].as_array().map_or(0, Vec::len);
        let _ = writeln!(
            text,
            "reads of {} in {} in {files} file{}, depth {}, {amount} a turn, rounds: {}, advice {}",
            blocks.join(", "),
            Size(size),
            if files == 1 { "" } else { "s" },
            s["depth"],
            s["rounds"],
            word("advice"),
        );
        let _ = writeln!(text, "{}", word("cache"));
    }

    /// One table of one cell.
    fn table(&self, text: &mut String, cell: &[Entry], table: &Table, paint: Paint) {
        let label = cell[0].label;
        let base = self.base(cell, table);
        // Of a mix, only what is of the table's class.
        let of_class = |all: &Value| match table.class {
            Some(class) => all["classes"][class].clone(),
            None => all.clone(),
        };
        let ratio = |entry: &Entry| {
            let ratio = self.ratios.get(&key(entry.name, base, label))?;
            Some(of_class(ratio)).filter(|ratio| !ratio.is_null())
        };
        let title = match table.class {
            Some(class) => format!("\n{class}"),
            None => label.title(),
        };
        let mut line = format!("{title:<NAME$}");
        for (i, column) in table.columns.iter().enumerate() {
            let _ = write!(line, "{:>1$}", column.title, column.width);
            if table.spread && i == 0 {
                let _ = write!(line, "{:>RANGE$}", "min-max");
            }
        }
        if cell.iter().any(|entry| ratio(entry).is_some()) {
            for compared in table.ratios {
                let title = compared.title(base);
                let _ = write!(line, "  {title:<0$}", compared.width() - 2);
            }
        }
        let _ = writeln!(text, "{}", paint.bold(line.trim_end()));
        for entry in cell {
            let mut line = format!("{:<NAME$}", entry.name);
            let figures = of_class(&entry.median);
            for (i, column) in table.columns.iter().enumerate() {
                let _ = write!(line, "{:>1$}", (column.show)(&figures), column.width);
                if table.spread && i == 0 {
                    let _ = write!(line, "{:>RANGE$}", entry.range());
                }
            }
            if let Some(ratio) = ratio(entry) {
                for compared in table.ratios {
                    let _ = write!(line, "  {}", compared.show(&ratio, paint));
                }
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }

    /// What a table compares with: the first of its bases that takes part; where it names none,
    /// the fastest contender; else the first.
    fn base(&self, cell: &[Entry], table: &Table) -> &'static str {
        let bases = table.bases.unwrap_or(self.bases);
        let rate = |entry: &&Entry| entry.median["ops_per_s"].as_f64().unwrap_or_default();
        let fastest = || cell.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)));
        bases
            .iter()
            .find(|base| cell.iter().any(|e| e.name == **base))
            .copied()
            .or_else(|| fastest().filter(|_| bases.is_empty()).map(|e| e.name))
            .unwrap_or(cell[0].name)
    }

    /// The latencies of each class of a mix, as fio prints them.
    fn histograms(text: &mut String, cell: &[Entry], paint: Paint) {
        for class in CLASSES {
            let drew: Vec<&Entry> = cell.iter().filter(|entry| entry.drew(class)).collect();
            if !drew.is_empty() {
                let _ = writeln!(text, "\n{}", paint.bold(&format!("{class} latencies")));
            }
            for entry in drew {
                let buckets = as_fio(&entry.median["classes"][class]["buckets"]);
                for (i, line) in buckets.iter().enumerate() {
                    let name = if i == 0 { entry.name } else { "" };
                    let _ = write!(text, "{name:<NAME$}");
                    wrapped(text, NAME, line);
                }
            }
        }
    }

    /// Whether a cell has more than one contender; those of a cell are beside each other.
    fn has_rivals(&self) -> bool {
        let mut beside = self.contenders.windows(2);
        beside.any(|two| two[0].label == two[1].label)
    }

    fn foot(&self, text: &mut String, paint: Paint) {
        text.push('\n');
        let coverage = self
            .ratios
            .values()
            .filter_map(|r| r["coverage"].as_f64())
            .fold(f64::INFINITY, f64::min);
        let _ = writeln!(
            text,
            "Medians over rounds; us: microseconds; stall99: 99 % of the calls that promise not to \
             block\nkept their caller no longer (of a blocking call: the call); cs: context \
             switches."
        );
        if coverage.is_finite() {
            let _ = write!(
                text,
                "Ratios: median of the ratios within each round; the range holds the true one with \
                 {:.0} %",
                coverage * 100.0
            );
            let more = if coverage < 0.95 {
                " (95 %: --rounds 6)"
            } else {
                ""
            };
            let _ = writeln!(text, "{more}.");
        } else {
            let _ = writeln!(text, "{}", ratio::none(self.has_rivals()));
        }
        for note in &self.notes {
            remark(text, paint, note);
        }
        if self.interrupted {
            remark(text, paint, "interrupted; this is what was measured");
        }
    }
}

/// Something on standard output: as JSON, or as the text that is made of it.
pub fn print(
    what: &impl Serialize,
    as_json: bool,
    text: impl FnOnce(Paint) -> String,
) -> Result<(), Problem> {
    let mut out = io::stdout().lock();
    let text = if as_json {
        serde_json::to_string_pretty(what).map_err(|e| Problem::of("JSON", e))? + "\n"
    } else {
        text(Paint(Terminal::look().colour))
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever read it has seen enough.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|e| Problem::of("standard output", e)),
    }
}

/// A note, in lines that fit.
pub fn remark(text: &mut String, paint: Paint, note: &str) {
    let _ = write!(text, "{}", paint.bold("Note:"));
    wrapped(text, 5, note);
}

/// The rest of a line of which so many columns are taken, broken where it gets too long.
pub fn wrapped(text: &mut String, taken: usize, words: &str) {
    let mut column = taken;
    for word in words.split(' ') {
        if column + 1 + word.chars().count() > 100 {
            let _ = write!(text, "\n{:taken$}", "");
            column = taken;
        }
        let _ = write!(text, " {word}");
        column += 1 + word.chars().count();
    }
    text.push('\n');
}

const NAME: usize = 14;
const RANGE: usize = 12;

impl Entry {
    fn new(name: &'static str, label: Label, rounds: Vec<Round>) -> Entry {
        let values: Vec<Value> = rounds.iter().map(|round| json!(round)).collect();
        Entry {
            name,
            label,
            median: median(&values),
            spread: spread(&values),
            rounds,
        }
    }

    /// Whether it made reads of this class.
    fn drew(&self, class: &str) -> bool {
        let of_class = |round: &Round| round.classes.get(class).map_or(0, |class| class.ops);
        self.rounds.iter().any(|round| of_class(round) > 0)
    }

    fn range(&self) -> String {
        let at = |key: &str| figure(&self.spread["ops_per_s"], key, 1e-3);
        format!("{}-{}", at("/min"), at("/max"))
    }
}

fn key(a: &str, b: &str, label: Label) -> String {
    format!("{a}/{b}{}", label.suffix())
}

fn settings(plan: &Plan<'_>, files: &Files) -> Value {
    let common = plan.common;
    let mut names: Vec<&str> = Vec::new();
    for contender in plan.cells.iter().flat_map(|cell| &cell.contenders) {
        if !names.contains(&contender.name) {
            names.push(contender.name);
        }
    }
    let mut threads: Vec<usize> = plan.cells.iter().map(|cell| cell.threads).collect();
    threads.dedup();
    threads.sort_unstable();
    threads.dedup();
    let (ops, seconds) = match common.amount() {
        Amount::Ops(ops) => (Some(ops), None),
        Amount::Seconds(seconds) => (None, Some(seconds)),
    };
    let mut settings = json!({
        "files": files,
        "size": files.total(),
        "block": plan.blocks,
        "threads": threads,
        "depth": common.depth,
        "ops": ops,
        "seconds": seconds,
        "rounds": common.rounds,
        "contenders": names,
        "advice": common.advice,
        "cache": plan.state(&plan.cells[0]).0.how(),
        "order": "contenders take turns within a round; each round begins with the next one",
        "seed": common.seed,
        "timed": format!("1 read in {}", plan.timed),
        "interval": "order statistics of the paired ratios (sign test); see coverage",
    });
    if let Order::Mix(mix) = plan.order {
        settings["mix"] = json!(mix);
    }
    settings
}

/// A figure of the medians, scaled.
fn figure(median: &Value, pointer: &str, scale: f64) -> String {
    median
        .pointer(pointer)
        .and_then(Value::as_f64)
        .map_or("-".into(), |x| digits(x * scale))
}

fn whole(median: &Value, pointer: &str) -> String {
    median
        .pointer(pointer)
        .and_then(Value::as_f64)
        .map_or("-".into(), |x| format!("{x:.0}"))
}

/// Three digits that count.
pub fn digits(x: f64) -> String {
    match x.abs() {
        a if a < 9.995 => format!("{x:.2}"),
        a if a < 99.95 => format!("{x:.1}"),
        _ => format!("{x:.0}"),
    }
}

/// Colour, for terminals.
#[derive(Clone, Copy)]
pub struct Paint(bool);

impl Paint {
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// Green for more than `line`, red for less, nothing for what may be either.
    fn verdict(self, text: &str, (low, high): (f64, f64), line: f64) -> String {
        match (low > line, high < line) {
            (true, _) => self.with("32", text),
            (_, true) => self.with("31", text),
            _ => text.into(),
        }
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.into()
        }
    }
}
