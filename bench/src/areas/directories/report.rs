//! The results: a table for each number of files, a chart of the time against the number of files, and
//! charts of the offsets of reads on a slow disk.

use serde::Serialize;
use serde_json::{Value, json};
use slowdisk::{Entry, Op};

use super::contender::Contender;
use super::said::Said;
use crate::harness::child::Ended;
use crate::harness::column::Column;
use crate::harness::machine::Machine;
use crate::harness::plot::{Axis, Chart, Line, Stroke};
use crate::harness::run::{Cell, Run};
use crate::harness::table::Table;
use nowait_cli::problem::Problem;

/// The figures whose ratios are taken.
const COMPARED: [&str; 3] = ["files_per_s", "seconds", "cpu_s"];

/// The columns of the tables.
const COLUMNS: [Column; 6] = [
    Column::Median("ms", "seconds", 1e3),
    Column::Range("seconds", 1e3),
    Column::Median("CPU ms", "cpu_s", 1e3),
    Column::Whole("reads", "reads"),
    Column::Median("MiB", "peak_kib", 1.0 / 1024.0),
    Column::Ratio("", "files_per_s"),
];

/// One turn of a contender.
#[derive(Clone, Debug, Serialize)]
pub struct Turn {
    seconds: f64,
    files_per_s: f64,
    cpu_s: f64,
    #[serde(flatten)]
    disk: Option<Disk>,
    #[serde(flatten)]
    said: Option<Said>,
}

/// The requests to a slow disk.
#[derive(Clone, Copy, Debug, Serialize)]
struct Disk {
    reads: u64,
    bytes_read: u64,
    /// The most reads at once.
    deepest: u64,
}

impl Turn {
    /// The figures of a process that has ended.
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
                "{name} found {} entries instead of {files}: a directory that changes during the \
                 bench cannot be measured",
                said.entries
            )));
        }
        Ok(Turn {
            seconds: ended.seconds,
            files_per_s: files as f64 / ended.seconds.max(1e-9),
            cpu_s: ended.used.cpu(),
            disk: log.map(Disk::of),
            said,
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
pub struct Directory {
    pub files: u64,
    rows: Vec<(Contender, Vec<Turn>)>,
}

impl Directory {
    pub fn new(files: u64, contenders: &[Contender]) -> Directory {
        Directory {
            files,
            rows: contenders.iter().map(|c| (c.clone(), Vec::new())).collect(),
        }
    }

    /// Adds a contender's next turn. Returns the number of its turns.
    pub fn add(&mut self, contender: usize, turn: Turn) -> usize {
        let turns = &mut self.rows[contender].1;
        turns.push(turn);
        turns.len()
    }

    /// The results of the directory, and the fastest program: the base of the ratios.
    fn results(&self) -> (Cell, String) {
        let mut cell = Cell::new(self.files.to_string(), json!({"files": self.files}));
        for (contender, turns) in &self.rows {
            cell.add(&contender.name, contender.is_ours(), turns);
        }
        let programs = self.rows.iter().map(|(contender, _)| contender);
        let programs: Vec<&str> = programs
            .filter(|contender| contender.is_program())
            .map(|contender| contender.name.as_str())
            .collect();
        let fastest = cell.best("files_per_s", |c| programs.contains(&c.name.as_str()));
        let fastest = fastest.map(|contender| contender.name.clone());
        cell.parameters.insert("best".into(), json!(fastest));
        let best = fastest.unwrap_or_default();
        cell.compare(&COMPARED, &[best.clone(), "getdents+stat".into()]);
        (cell, best)
    }
}

/// The offsets of a contender's reads.
pub struct Seeks {
    name: String,
    /// Seconds since the first read, and MiB from the start of the disk.
    points: Vec<(f64, f64)>,
}

/// The most dots of one chart.
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

    /// The offset of each read against time.
    fn chart(&self, files: u64, subtitle: &str) -> Chart {
        Chart {
            name: format!("dir-seeks-{}", self.name.replace('+', "-")),
            title: format!("{}: offsets of its reads, {files} files", self.name),
            subtitle: subtitle.into(),
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
                points: self.points.clone(),
                stroke: Stroke::Dots,
            }],
            marks: Vec::new(),
        }
    }
}

/// The results of all directories.
pub fn run(machine: Machine, settings: Value, directories: &[Directory], seeks: &[Seeks]) -> Run {
    let subtitle = match settings["disk"].as_str() {
        Some(disk) => {
            let filesystem = machine.filesystem.as_deref().unwrap_or_default();
            format!("{} cores, {filesystem}; {disk}", machine.cores)
        }
        None => machine.to_string(),
    };
    let mut run = Run::new("dir", machine, settings);
    for directory in directories {
        let (cell, best) = directory.results();
        if !cell.contenders.is_empty() {
            let title = format!("{} files", directory.files);
            run.tables
                .push(Table::of(&title, &cell, &best, "", &COLUMNS));
            run.cells.push(cell);
        }
    }
    if run.cells.len() > 1 {
        run.charts
            .push(times(&run.cells, &directories[0], &subtitle));
    }
    let most = directories.last().map_or(0, |directory| directory.files);
    run.charts
        .extend(seeks.iter().map(|seeks| seeks.chart(most, &subtitle)));
    run
}

/// The time against the number of files.
fn times(cells: &[Cell], directory: &Directory, subtitle: &str) -> Chart {
    let line = |contender: &Contender| Line {
        name: match contender.stroke() {
            Stroke::Dashed => format!("{} (dashed)", contender.name),
            _ => contender.name.clone(),
        },
        points: cells
            .iter()
            .filter_map(|cell| {
                let seconds = cell.contender(&contender.name)?.figure("seconds")?;
                Some((cell.parameters["files"].as_f64()?, seconds))
            })
            .collect(),
        stroke: contender.stroke(),
    };
    Chart {
        name: "dir".into(),
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
        lines: directory
            .rows
            .iter()
            .map(|(contender, _)| line(contender))
            .collect(),
        marks: Vec::new(),
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
