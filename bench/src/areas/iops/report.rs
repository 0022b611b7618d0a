//! What `bench iops` prints: rows as in 2019, and beside them what an operation costs its processor and
//! how it compares. The JSON's shape is in the help ([`super::AFTER`]).

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::contender::Name;
use super::{Bench, Cell, Table};
use crate::harness::machine::Machine;
use crate::harness::ratio::{self, Ratio};
use crate::harness::report::{Paint, digits, remark};
use crate::harness::round::{Round, median, spread};
use nowait_cli::size::Size;

/// Who does not take part, and why.
#[derive(Clone, Debug)]
pub struct Absent {
    pub name: Name,
    pub why: String,
}

/// All that came of the bench.
#[derive(Serialize)]
pub struct Report {
    bench: &'static str,
    version: &'static str,
    machine: Machine,
    settings: Value,
    interrupted: bool,
    notes: Vec<String>,
    tables: Vec<OneTable>,
}

#[derive(Serialize)]
struct OneTable {
    table: Table,
    block: u64,
    devices: usize,
    rows: Vec<Row>,
    absent: Vec<Value>,
    ratios: Map<String, Value>,
}

#[derive(Serialize)]
struct Row {
    interface: Name,
    qd: usize,
    polled: bool,
    rounds: Vec<Round>,
    median: Value,
    spread: Value,
    /// The depth of its cell: what its ratios are named by.
    #[serde(skip)]
    depth: usize,
}

impl Report {
    /// `None` if nothing was measured.
    pub fn new(
        machine: Machine,
        settings: Value,
        interrupted: bool,
        bench: &Bench<'_>,
    ) -> Option<Report> {
        let mut tables: Vec<OneTable> = Vec::new();
        for cell in &bench.cells {
            if tables.last().is_none_or(|table| table.table != cell.table) {
                tables.push(OneTable::new(cell, bench));
            }
            if let Some(table) = tables.last_mut() {
                table.take_in(cell, bench);
            }
        }
        for table in &mut tables {
            table.sort();
        }
        tables.retain(|table| !table.rows.is_empty() || !table.absent.is_empty());
        let measured = tables.iter().any(|table| !table.rows.is_empty());
        measured.then(|| Report {
            bench: "iops",
            version: env!("CARGO_PKG_VERSION"),
            machine,
            settings,
            interrupted,
            notes: bench.notes.clone(),
            tables,
        })
    }

    /// For people.
    pub fn text(&self, paint: Paint) -> String {
        let mut text = format!("nowait-bench {} iops on {}\n", self.version, self.machine);
        for table in &self.tables {
            table.text(&mut text, paint);
        }
        let _ = writeln!(
            text,
            "\nMedians over rounds; CPU: processor time of one operation; ratios: medians of those within \
             each\nround, of operations per second, with the range that holds the true one."
        );
        if self.tables.iter().all(|table| table.ratios.is_empty()) {
            let has_rivals = self.tables.iter().any(OneTable::has_rivals);
            let _ = writeln!(text, "{}", ratio::none(has_rivals));
        }
        for note in &self.notes {
            remark(&mut text, paint, note);
        }
        if self.interrupted {
            remark(&mut text, paint, "interrupted; this is what was measured");
        }
        text
    }
}

impl OneTable {
    fn new(cell: &Cell, bench: &Bench<'_>) -> OneTable {
        let absent = bench
            .absent
            .iter()
            .filter(|(table, _)| *table == cell.table);
        OneTable {
            table: cell.table,
            block: cell.block,
            devices: bench.ground.files_for(cell.block, cell.table.per_core()).paths.len(),
            rows: Vec::new(),
            absent: absent
                .map(|(_, Absent { name, why })| {
                    json!({"interface": name, "polled": name.polled(), "why": why})
                })
                .collect(),
            ratios: Map::new(),
        }
    }

    fn take_in(&mut self, cell: &Cell, bench: &Bench<'_>) {
        let depth = cell.depth;
        let of = |name: Name| {
            let at = |i: &usize| bench.contenders[*i].name == name;
            Some(&cell.rounds[cell.contenders.iter().position(at)?])
        };
        for (i, rounds) in cell.contenders.iter().zip(&cell.rounds) {
            let name = bench.contenders[*i].name;
            if rounds.is_empty() {
                continue;
            }
            for base in bases(name) {
                if let Some(ratio) = of(base).and_then(|base| Ratio::of(rounds, base)) {
                    self.ratios.insert(key(name, base, depth), json!(ratio));
                }
            }
            self.rows.push(Row::new(name, depth, rounds));
        }
    }

    /// Whether a row has another that it is compared with.
    fn has_rivals(&self) -> bool {
        let is_there = |base, depth| {
            let mut rows = self.rows.iter();
            rows.any(|row| row.interface == base && row.depth == depth)
        };
        let mut rows = self.rows.iter();
        rows.any(|row| bases(row.interface).any(|base| is_there(base, row.depth)))
    }

    /// By interface, then by depth, as in 2019.
    fn sort(&mut self) {
        self.rows
            .sort_by_key(|row| (row.interface as usize, row.depth));
    }

    fn text(&self, text: &mut String, paint: Paint) {
        let devices = match self.devices {
            1 => String::new(),
            n => format!(", {n} files or devices, one thread on one core"),
        };
        let title = format!(
            "{}, {} random{devices}",
            self.table.word(),
            Size(self.block)
        );
        let _ = writeln!(text, "\n{}", paint.bold(&title));
        let _ = writeln!(
            text,
            "{:<21}{:>4}{:>8}{:>11}{:>9}{:>9}   {:<19}x fio, same options",
            "Interface", "QD", "Polled", "Latency", "IOPS", "CPU", "x libaio"
        );
        for row in &self.rows {
            let at = |pointer: &str| row.median.pointer(pointer).and_then(Value::as_f64);
            let us = |pointer: &str| at(pointer).map_or("-".into(), |us| digits(us) + "us");
            let latency = match self.table.per_core() {
                true => "-".into(),
                false => us("/lat_us/p50"),
            };
            let _ = write!(
                text,
                "{:<21}{:>4}{:>8}{:>11}{:>9}{:>9}   {:<19}{}",
                row.interface.word(),
                row.qd,
                u8::from(row.polled),
                latency,
                at("/ops_per_s").map_or("-".into(), |iops| digits(iops / 1e3) + "K"),
                us("/cpu_us_per_op"),
                self.ratio(row, Some(Name::Libaio)),
                self.ratio(row, row.interface.beside()),
            );
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        for absent in &self.absent {
            let (name, why) = (&absent["interface"], &absent["why"]);
            let polled = u8::from(absent["polled"] == true);
            let name = name.as_str().unwrap_or_default();
            let _ = write!(text, "{name:<21}{:>4}{polled:>8}   not run:", "");
            crate::harness::report::wrapped(text, 44, why.as_str().unwrap_or_default());
        }
    }

    fn ratio(&self, row: &Row, base: Option<Name>) -> String {
        let found = base.and_then(|base| self.ratios.get(&key(row.interface, base, row.depth)));
        let Some(ratio) = found else {
            return String::new();
        };
        let of = |key: &str| digits(ratio[key].as_f64().unwrap_or(0.0));
        format!("{} ({}-{})", of("median"), of("low95"), of("high95"))
    }
}

/// Whom an interface is compared with.
fn bases(name: Name) -> impl Iterator<Item = Name> {
    let bases = [Some(Name::Libaio), name.beside()];
    bases
        .into_iter()
        .flatten()
        .filter(move |base| *base != name)
}

fn key(a: Name, b: Name, depth: usize) -> String {
    format!("{}/{}@{depth}", a.word(), b.word())
}

impl Row {
    fn new(name: Name, depth: usize, rounds: &[Round]) -> Row {
        let values: Vec<Value> = rounds.iter().map(|round| json!(round)).collect();
        Row {
            interface: name,
            qd: name.depth(depth),
            polled: name.polled(),
            median: median(&values),
            spread: spread(&values),
            rounds: rounds.to_vec(),
            depth,
        }
    }
}
