//! The table of costs, and its comparison with the committed one.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The fraction by which the instructions of a row may differ from the committed table.
const BOUND: f64 = 0.05;
/// System calls and allocations may differ by this number, such as those of a queue that grows, or by this
/// fraction. A batch of 64 has 0.016 if it has one.
const RARE: f64 = 0.005;
const RARE_FRACTION: f64 = 0.01;
/// The names of rows that wait for a disk have this.
const MISS: &str = ", miss";

/// The ends of the names of the two parts of a row with several threads.
pub const FIRST_THREAD: &str = ": first thread";
pub const OTHER_THREADS: &str = ": other threads";

/// The cost of one operation in user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub instructions: f64,
    pub system_calls: f64,
    pub allocations: f64,
    pub clock_reads: f64,
}

impl Cost {
    /// As many digits as are the same in each run.
    pub fn rounded(self) -> Cost {
        let round = |value: f64, digits: f64| (value * digits).round() / digits + 0.0;
        Cost {
            instructions: round(self.instructions, 10.0),
            system_calls: round(self.system_calls, 1000.0),
            allocations: round(self.allocations, 1000.0),
            clock_reads: round(self.clock_reads, 1000.0),
        }
    }
}

/// The versions on which the costs depend. With others nothing is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolchain {
    pub rustc: String,
    pub glibc: String,
    pub valgrind: String,
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.rustc, self.glibc, self.valgrind)
    }
}

/// The costs of all rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    pub toolchain: Toolchain,
    pub rows: BTreeMap<String, Cost>,
}

/// The result of a comparison with the committed cost of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Same,
    /// The committed table does not have the row.
    New,
    /// The committed table has another toolchain, or the count depends on how fast threads and disks are.
    NotCompared,
    Cheaper,
    /// More than the bound: the text names the count.
    Dearer(&'static str),
}

impl Change {
    /// Compares the cost of a row with the committed one.
    fn of(before: &Cost, now: &Cost) -> Change {
        let more = |before: f64, now: f64| now > before + RARE.max(before * RARE_FRACTION);
        if now.instructions > before.instructions * (1.0 + BOUND) {
            Change::Dearer("instructions")
        } else if more(before.system_calls, now.system_calls) {
            Change::Dearer("system calls")
        } else if more(before.allocations, now.allocations) {
            Change::Dearer("allocations")
        } else if now.instructions < before.instructions * (1.0 - BOUND)
            || more(now.system_calls, before.system_calls)
            || more(now.allocations, before.allocations)
        {
            Change::Cheaper
        } else {
            Change::Same
        }
    }
}

/// A table beside the committed one.
pub struct Comparison<'a> {
    before: &'a Table,
    now: &'a Table,
    /// The rows that were not measured, with the reason.
    skipped: &'a BTreeMap<String, String>,
}

impl<'a> Comparison<'a> {
    pub fn new(
        before: &'a Table,
        now: &'a Table,
        skipped: &'a BTreeMap<String, String>,
    ) -> Comparison<'a> {
        Comparison {
            before,
            now,
            skipped,
        }
    }

    fn same_toolchain(&self) -> bool {
        self.before.toolchain == self.now.toolchain
    }

    /// The change of each row that was measured.
    pub fn changes(&self) -> impl Iterator<Item = (&str, Change)> {
        let rows = self.now.rows.iter();
        rows.map(|(name, now)| (name.as_str(), self.change(name, now)))
    }

    fn change(&self, name: &str, now: &Cost) -> Change {
        // A thread sleeps or polls until another one is done, or a disk.
        let others = format!("{name}{OTHER_THREADS}");
        let waits = self.now.rows.contains_key(&others)
            || name.ends_with(FIRST_THREAD)
            || name.ends_with(OTHER_THREADS)
            || name.contains(MISS);
        if !self.same_toolchain() || waits {
            return Change::NotCompared;
        }
        let before = self.before.rows.get(name);
        before.map_or(Change::New, |before| Change::of(before, now))
    }

    /// The committed rows that are not measured any more.
    pub fn lost(&self) -> Vec<&str> {
        let names = self.before.rows.keys().map(String::as_str);
        let is_skipped = |name: &str| self.skipped.keys().any(|skipped| name.starts_with(skipped));
        let is_lost = |name: &&str| !self.now.rows.contains_key(*name) && !is_skipped(name);
        names
            .filter(|name| self.same_toolchain() && is_lost(name))
            .collect()
    }

    /// The sentences below the table.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.same_toolchain() && !self.before.rows.is_empty() {
            let before = &self.before.toolchain;
            remarks.push(format!(
                "not compared: the committed table was made with {before}"
            ));
        }
        for (name, change) in self.changes() {
            match change {
                Change::Dearer(count) => {
                    remarks.push(format!("{name}: more {count} than in the committed table"))
                }
                Change::Cheaper => remarks.push(format!(
                    "{name}: cheaper; commit the new table (make instructions ARGS=--save)"
                )),
                Change::New => {
                    remarks.push(format!(
                        "{name}: new; commit the new table (make instructions ARGS=--save)"
                    ));
                }
                Change::NotCompared | Change::Same => {}
            }
        }
        let lost = self.lost();
        remarks.extend(
            lost.iter()
                .map(|name| format!("{name}: in the committed table, but not measured")),
        );
        remarks
    }

    /// Returns true if no row is dearer, and none is lost.
    pub fn passes(&self) -> bool {
        let is_dearer = |(_, change)| matches!(change, Change::Dearer(_));
        !self.changes().any(is_dearer) && self.lost().is_empty()
    }

    /// The table as text, with the rows in this order.
    pub fn text(&self, names: &[String]) -> String {
        let mut text = format!(
            "{:40} {:>12} {:>7} {:>7} {:>7} {:>12} {:>8}\n",
            "operation", "instructions", "calls", "allocs", "clock", "before", "change"
        );
        for name in names {
            let Some(now) = self.now.rows.get(name) else {
                continue;
            };
            let before = self.before.rows.get(name);
            let (before, change) = before.map_or((String::new(), String::new()), |before| {
                let change = (now.instructions / before.instructions - 1.0) * 100.0;
                (
                    format!("{:.1}", before.instructions),
                    format!("{change:+.1} %"),
                )
            });
            text += &format!(
                "{name:40} {:12.1} {:7.3} {:7.3} {:7.3} {before:>12} {change:>8}\n",
                now.instructions, now.system_calls, now.allocations, now.clock_reads
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost {
        instructions: 200.0,
        system_calls: 1.0,
        allocations: 0.0,
        clock_reads: 0.0,
    };

    fn table(rows: &[(&str, Cost)]) -> Table {
        let rows = rows.iter().map(|(name, cost)| ((*name).to_owned(), *cost));
        Table {
            toolchain: Toolchain {
                rustc: "rustc 1".to_owned(),
                ..Toolchain::default()
            },
            rows: rows.collect(),
        }
    }

    fn passes(before: &Table, now: &Table) -> bool {
        Comparison::new(before, now, &BTreeMap::new()).passes()
    }

    fn with(change: impl FnOnce(&mut Cost)) -> Cost {
        let mut cost = COST;
        change(&mut cost);
        cost
    }

    #[test]
    fn more_than_five_per_cent_more_instructions_are_dearer() {
        let change =
            |instructions| Change::of(&COST, &with(|cost| cost.instructions = instructions));
        assert_eq!(change(209.9), Change::Same);
        assert_eq!(change(210.1), Change::Dearer("instructions"));
        assert_eq!(change(190.1), Change::Same);
        assert_eq!(change(189.9), Change::Cheaper);
    }

    #[test]
    fn each_system_call_and_allocation_more_is_dearer() {
        let change = |cost| Change::of(&COST, &cost);
        let calls = |calls| with(|cost| cost.system_calls = calls);
        assert_eq!(change(calls(2.0)), Change::Dearer("system calls"));
        assert_eq!(change(calls(1.016)), Change::Dearer("system calls"));
        assert_eq!(change(calls(1.004)), Change::Same);
        assert_eq!(change(calls(0.0)), Change::Cheaper);
        assert_eq!(
            change(with(|cost| cost.allocations = 1.0)),
            Change::Dearer("allocations")
        );
        assert_eq!(change(with(|cost| cost.clock_reads = 9.0)), Change::Same);
    }

    #[test]
    fn fewer_system_calls_do_not_pay_for_instructions() {
        let cost = with(|cost| (cost.instructions, cost.system_calls) = (300.0, 0.0));
        assert_eq!(Change::of(&COST, &cost), Change::Dearer("instructions"));
    }

    #[test]
    fn a_dearer_row_fails_the_comparison() {
        let before = table(&[("a", COST), ("b", COST)]);
        assert!(passes(&before, &before));
        let dearer = with(|cost| cost.instructions = 300.0);
        assert!(!passes(&before, &table(&[("a", COST), ("b", dearer)])));
    }

    #[test]
    fn a_row_that_is_no_longer_measured_fails_unless_it_was_skipped() {
        let before = table(&[("a", COST), ("b", COST), ("b: other threads", COST)]);
        let now = table(&[("a", COST)]);
        assert!(!passes(&before, &now));
        let skipped = BTreeMap::from([("b".to_owned(), "needs root".to_owned())]);
        assert!(Comparison::new(&before, &now, &skipped).passes());
    }

    #[test]
    fn a_new_row_and_a_cheaper_row_pass_and_are_remarked() {
        let before = table(&[("a", COST)]);
        let cheaper = with(|cost| cost.instructions = 100.0);
        let now = table(&[("a", cheaper), ("new", COST)]);
        assert!(passes(&before, &now));
        let skipped = BTreeMap::new();
        let remarks = Comparison::new(&before, &now, &skipped)
            .remarks()
            .join("\n");
        assert!(remarks.contains("a: cheaper; commit"), "{remarks}");
        assert!(remarks.contains("new: new; commit"), "{remarks}");
    }

    #[test]
    fn rows_with_threads_and_rows_that_wait_for_a_disk_are_not_compared() {
        let names = ["a", "a: first thread", "a: other threads", "b, miss", "c"];
        let before = table(&names.map(|name| (name, COST)));
        let dearer = with(|cost| cost.instructions = 300.0);
        let with_dearer = |dear: usize| {
            let mut rows = names.map(|name| (name, COST));
            rows[dear].1 = dearer;
            table(&rows)
        };
        let passes = [0, 1, 2, 3, 4].map(|dear| passes(&before, &with_dearer(dear)));
        assert_eq!(passes, [true, true, true, true, false]);
    }

    #[test]
    fn nothing_is_compared_with_another_toolchain() {
        let before = table(&[("a", COST), ("gone", COST)]);
        let mut now = table(&[("a", with(|cost| cost.instructions = 900.0))]);
        now.toolchain.rustc = "rustc 2".to_owned();
        assert!(passes(&before, &now));
        let skipped = BTreeMap::new();
        let remarks = Comparison::new(&before, &now, &skipped)
            .remarks()
            .join("\n");
        assert!(
            remarks.contains("not compared") && remarks.contains("rustc 1"),
            "{remarks}"
        );
    }

    #[test]
    fn a_table_is_the_same_after_it_was_written_and_read() {
        let before = table(&[("a", COST)]);
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<Table>(&text).unwrap(), before);
    }
}
