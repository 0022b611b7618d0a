//! What `bench dir` prints: its JSON (the shape is in the verb's help), a table for each number of
//! files, and charts.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value, json};
use slowdisk::{Entry, Op};

use super::child::Ended;
use super::contender::Contender;
use super::inside::Said;
use crate::harness::machine::Machine;
use crate::harness::plot::{Axis, Chart, Line, Stroke};
use crate::harness::ratio::{self, Ratio};
use crate::harness::report::{Paint, remark};
use crate::harness::round::{Round, median};
use crate::harness::sign_test::middle;
use crate::harness::usage::Usage;
use nowait_cli::problem::Problem;

/// One turn of a contender.
#[derive(Clone, Debug, Serialize)]
pub struct Turn {
    pub seconds: f64,
    cpu_s: f64,
    #[serde(flatten)]
    disk: Option<Disk>,
    #[serde(flatten)]
    said: Option<Said>,
    #[serde(skip)]
    used: Usage,
}

/// What was asked of a slow disk.
#[derive(Clone, Copy, Debug, Serialize)]
struct Disk {
    reads: u64,
    bytes_read: u64,
    /// The most that were there at once.
    deepest: u64,
}

impl Turn {
    /// Of a process that has ended.
    pub fn new(
        contender: &Contender,
        files: u64,
        ended: &Ended,
        log: Option<&[Entry]>,
    ) -> Result<Turn, Problem> {
        let name = &contender.name;
        let said: Option<Said> = match contender.says() {
            true => Some(serde_json::from_str(&ended.said).map_err(|e| Problem::of(name, e))?),
            false => None,
        };
        if let Some(said) = said.filter(|said| said.entries != files) {
            return Err(Problem::Failed(format!(
                "{name} found {} entries instead of {files}: a directory that changes meanwhile \
                 can't be measured",
                said.entries
            )));
        }
        Ok(Turn {
            seconds: ended.seconds,
            cpu_s: ended.used.cpu(),
            disk: log.map(Disk::of),
            said,
            used: ended.used,
        })
    }
}

impl Disk {
    fn of(log: &[Entry]) -> Disk {
        let reads = || log.iter().filter(|entry| entry.op == Op::Read);
        let mut changes: Vec<_> = reads()
            .flat_map(|entry| [(entry.time, 1), (entry.time + entry.latency, -1)])
            .collect();
        changes.sort_unstable();
        let (mut now, mut deepest) = (0i64, 0);
        for (_, change) in changes {
            now += change;
            deepest = deepest.max(now);
        }
        Disk {
            reads: reads().count() as u64,
            bytes_read: reads().map(|entry| u64::from(entry.len)).sum(),
            deepest: deepest as u64,
        }
    }
}

/// The turns of all contenders in one directory.
pub struct Table {
    pub files: u64,
    rows: Vec<(Contender, Vec<Turn>)>,
}

impl Table {
    pub fn new(files: u64, contenders: &[Contender]) -> Table {
        Table {
            files,
            rows: contenders.iter().map(|c| (c.clone(), Vec::new())).collect(),
        }
    }

    /// Takes a contender's next turn. Says how many it has now.
    pub fn take(&mut self, contender: usize, turn: Turn) -> usize {
        let turns = &mut self.rows[contender].1;
        turns.push(turn);
        turns.len()
    }
}

/// Where a contender's reads went.
pub struct Seeks {
    name: String,
    /// Seconds from the first one, and MiB from the beginning of the disk.
    points: Vec<(f64, f64)>,
}

/// Dots of one picture, at most: it is looked at, not calculated with.
const DOTS: usize = 8_000;

impl Seeks {
    pub fn new(name: &str, log: &[Entry]) -> Seeks {
        let reads = || log.iter().filter(|entry| entry.op == Op::Read);
        let first = reads().map(|entry| entry.time).min().unwrap_or_default();
        let one_in = reads().count().div_ceil(DOTS).max(1);
        let point = |entry: &Entry| {
            let time = (entry.time - first).as_secs_f64();
            (time, entry.offset as f64 / f64::from(1 << 20))
        };
        Seeks {
            name: name.into(),
            points: reads().step_by(one_in).map(point).collect(),
        }
    }
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
    tables: Vec<Shown>,
}

/// One directory.
#[derive(Serialize)]
struct Shown {
    files: u64,
    /// The fastest of the others' programs.
    best: Option<String>,
    contenders: Vec<Row>,
    ratios: Map<String, Value>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    rounds: Vec<Turn>,
    median: Value,
    spread: Value,
    #[serde(skip)]
    beside: Option<Ratio>,
    #[serde(skip)]
    stroke: Stroke,
}

impl Shown {
    fn new(table: Table) -> Option<Shown> {
        let Table { files, mut rows } = table;
        rows.retain(|(_, turns)| !turns.is_empty());
        let seconds = |turns: &[Turn]| {
            let mut all: Vec<f64> = turns.iter().map(|turn| turn.seconds).collect();
            middle(&mut all)
        };
        let best = rows
            .iter()
            .enumerate()
            .filter(|(_, (contender, _))| contender.is_program())
            .min_by(|(_, a), (_, b)| seconds(&a.1).total_cmp(&seconds(&b.1)))
            .map(|(i, _)| i);
        let rounds: Vec<Vec<Round>> = rows
            .iter()
            .map(|(_, turns)| {
                turns
                    .iter()
                    .map(|t| Round::new(files, 0, t.seconds, t.used))
                    .collect()
            })
            .collect();
        let plain = rows
            .iter()
            .position(|(contender, _)| contender.name == "getdents+stat");
        let mut ratios = Map::new();
        for base in [best, plain].into_iter().flatten() {
            for i in (0..rows.len()).filter(|&i| i != base) {
                let key = format!("{}/{}", rows[i].0.name, rows[base].0.name);
                if let Some(ratio) = Ratio::of(&rounds[i], &rounds[base]) {
                    ratios.insert(key, json!(ratio));
                }
            }
        }
        let name = best.map(|best| rows[best].0.name.clone());
        // One that is alone does not stand beside itself.
        let beside = best.filter(|_| rows.len() > 1);
        let contenders: Vec<Row> = rows
            .into_iter()
            .zip(&rounds)
            .map(|((contender, turns), own)| Row {
                beside: beside.and_then(|best| Ratio::of(own, &rounds[best])),
                ..Row::new(&contender, turns)
            })
            .collect();
        (!contenders.is_empty()).then_some(Shown {
            files,
            best: name,
            contenders,
            ratios,
        })
    }
}

impl Shown {
    /// Whether there is a program to stand beside, and somebody who does.
    fn has_rivals(&self) -> bool {
        self.best.is_some() && self.contenders.len() > 1
    }
}

impl Row {
    fn new(contender: &Contender, turns: Vec<Turn>) -> Row {
        let values: Vec<Value> = turns.iter().map(|turn| json!(turn)).collect();
        let seconds = || turns.iter().map(|turn| turn.seconds);
        Row {
            name: contender.name.clone(),
            median: median(&values),
            spread: json!({"seconds": {
                "min": seconds().fold(f64::INFINITY, f64::min),
                "max": seconds().fold(0.0, f64::max),
            }}),
            stroke: contender.stroke(),
            beside: None,
            rounds: turns,
        }
    }

    fn figure(&self, key: &str) -> Option<f64> {
        self.median[key].as_f64()
    }
}

impl Report {
    /// Of all that was measured; `None` if no turn has ended.
    pub fn new(
        machine: Machine,
        settings: Value,
        interrupted: bool,
        tables: Vec<Table>,
    ) -> Option<Report> {
        let tables: Vec<Shown> = tables.into_iter().filter_map(Shown::new).collect();
        (!tables.is_empty()).then_some(Report {
            bench: "dir",
            version: env!("CARGO_PKG_VERSION"),
            machine,
            settings,
            interrupted,
            notes: Vec::new(),
            tables,
        })
    }

    /// The same, with what a reader should know.
    pub fn with_notes(self, notes: Vec<String>) -> Report {
        Report { notes, ..self }
    }

    /// For people.
    pub fn text(&self, paint: Paint) -> String {
        let mut text = format!(
            "nowait-bench {} dir on {}\n{}\n",
            self.version,
            self.machine,
            self.circumstances()
        );
        let mut coverage = None;
        for table in &self.tables {
            let beside = match &table.best {
                Some(best) => format!("beside {best}"),
                None => String::new(),
            };
            let head = format!(
                "\n{:<28}{:>9}{:>15}{:>22}{:>9}{:>9}{:>9}",
                format!("{} files", table.files),
                "s",
                "min-max",
                beside,
                "cpu s",
                "reads",
                "peak M"
            );
            let _ = writeln!(text, "{}", paint.bold(head.trim_end()));
            for row in &table.contenders {
                coverage = coverage.or(row.beside.as_ref().map(|ratio| ratio.coverage));
                let _ = writeln!(text, "{}", line(row).trim_end());
            }
        }
        let _ = match coverage {
            Some(coverage) => writeln!(
                text,
                "\nbeside: times as fast; the range holds the true median with {:.0} %{}.",
                100.0 * coverage,
                if coverage < 0.95 {
                    " (95 %: --rounds 6)"
                } else {
                    ""
                }
            ),
            None => writeln!(
                text,
                "\n{}",
                ratio::none(self.tables.iter().any(Shown::has_rivals))
            ),
        };
        for note in &self.notes {
            remark(&mut text, paint, note);
        }
        if self.interrupted {
            remark(&mut text, paint, "interrupted; this is what was measured");
        }
        text
    }

    fn circumstances(&self) -> String {
        let cache = self.settings["cache"].as_str().unwrap_or_default();
        let xattr = match self.settings["xattr"].as_bool() {
            Some(true) => ", with extended attributes",
            _ => "",
        };
        format!(
            "{}{cache}{xattr}",
            self.disk().map_or(String::new(), |disk| disk + "; ")
        )
    }

    /// The slow disk in words.
    fn disk(&self) -> Option<String> {
        let disk = &self.settings["slow_disk"];
        let ms = |key: &str| disk[key].as_f64().map(|us| us / 1e3);
        let latency = ms("latency_us")?;
        let seek = match ms("seek_us") {
            Some(seek) if seek > 0.0 => format!(", {seek} ms more for a seek"),
            _ => String::new(),
        };
        Some(format!(
            "a slow disk: {latency} ms a request{seek}, {} at once",
            disk["queue"]
        ))
    }

    /// Time against the number of files, and where the reads went.
    pub fn charts(&self, seeks: &[Seeks]) -> Vec<(String, Chart)> {
        let subtitle = match self.disk() {
            Some(disk) => {
                let filesystem = self.machine.filesystem.unwrap_or_default();
                format!("{} cores, {filesystem}; {disk}", self.machine.cores)
            }
            None => self.machine.to_string(),
        };
        let mut charts = Vec::new();
        if self.tables.len() > 1 {
            charts.push(("dir".into(), self.times(&subtitle)));
        }
        let most = self.tables.last().map_or(0, |table| table.files);
        for Seeks { name, points } in seeks {
            let chart = Chart {
                title: format!("{name}: where its reads went, {most} files"),
                subtitle: subtitle.clone(),
                x: Axis {
                    label: "s from the first read".into(),
                    log: false,
                },
                y: Axis {
                    label: "offset on the disk, MiB".into(),
                    log: false,
                },
                lines: vec![Line {
                    name: "reads".into(),
                    points: points.clone(),
                    stroke: Stroke::Dots,
                }],
                marks: Vec::new(),
            };
            charts.push((format!("dir-seeks-{}", name.replace('+', "-")), chart));
        }
        charts
    }

    fn times(&self, subtitle: &str) -> Chart {
        let all = &self.tables[0].contenders;
        let lines = all.iter().map(|row| Line {
            name: match row.stroke {
                Stroke::Dashed => format!("{} (dashed)", row.name),
                _ => row.name.clone(),
            },
            points: self
                .tables
                .iter()
                .filter_map(|table| {
                    let same = table
                        .contenders
                        .iter()
                        .find(|other| other.name == row.name)?;
                    Some((table.files as f64, same.figure("seconds")?))
                })
                .collect(),
            stroke: row.stroke,
        });
        Chart {
            title: "List a directory and ask about every entry".into(),
            subtitle: subtitle.into(),
            x: Axis {
                label: "files".into(),
                log: true,
            },
            y: Axis {
                label: "s".into(),
                log: true,
            },
            lines: lines.collect(),
            marks: Vec::new(),
        }
    }
}

fn line(row: &Row) -> String {
    let beside = row.beside.as_ref().map(|ratio| {
        let ops = &ratio.ops;
        format!("{:.2} ({:.2}-{:.2})", ops.median, ops.low95, ops.high95)
    });
    let spread = &row.spread["seconds"];
    let range = ["min", "max"].map(|key| spread[key].as_f64().map_or("-".into(), digits));
    let whole = |x: Option<f64>| x.map_or(String::new(), |x| format!("{x:.0}"));
    format!(
        "{:<28}{:>9}{:>15}{:>22}{:>9}{:>9}{:>9}",
        row.name,
        row.figure("seconds").map_or("-".into(), digits),
        range.join("-"),
        beside.unwrap_or_default(),
        row.figure("cpu_s").map_or("-".into(), digits),
        whole(row.figure("reads")),
        whole(row.figure("peak_kib").map(|kib| kib / 1024.0)),
    )
}

/// Seconds, with three digits that count, and no more than milliseconds.
fn digits(seconds: f64) -> String {
    match seconds {
        s if s < 9.9995 => format!("{s:.3}"),
        s if s < 99.95 => format!("{s:.1}"),
        s => format!("{s:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn reads_that_overlap_are_counted() {
        let entry = |at: u64, op, latency: u64| Entry {
            time: Duration::from_millis(at),
            op,
            offset: at << 20,
            len: 4096,
            latency: Duration::from_millis(latency),
            failed: false,
        };
        let log = [
            entry(0, Op::Write, 100),
            entry(10, Op::Read, 5),
            entry(12, Op::Read, 5),
            entry(15, Op::Read, 1),
            entry(17, Op::Read, 1),
        ];
        let disk = Disk::of(&log);
        assert_eq!((disk.reads, disk.bytes_read, disk.deepest), (4, 16384, 2));
        let seeks = Seeks::new("x", &log);
        assert_eq!(seeks.points[0], (0.0, 10.0));
        assert_eq!(seeks.points.len(), 4);
        assert_eq!(Disk::of(&[]).deepest, 0);
    }
}
