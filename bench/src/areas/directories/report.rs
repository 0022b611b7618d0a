//! The results: a table for each number of files, a chart of the time against the number of files,
//! and charts of the offsets of reads on a slow disk.

use slowdisk::{Entry, Op};

use super::contender::Contender;
use super::said::Said;
use crate::harness;
use crate::harness::cell::Cell;
use crate::harness::child::Ended;
use crate::harness::column::Column;
use crate::harness::plot::{Axis, Chart, Line, Stroke};
use crate::harness::processes::COMPARED;
use crate::harness::run::Run;
use nowait_cli::problem::Problem;

const COLUMNS: [Column; 6] = [
    Column::Median("ms", "seconds", 1e3),
    Column::Range("seconds", 1e3),
    Column::Median("CPU ms", "cpu_s", 1e3),
    Column::Whole("reads", "reads"),
    Column::Median("MiB", "peak_kib", 1.0 / 1024.0),
    Column::Ratio("", "files_per_s"),
];

/// The report of a process of this program; `None` of another program.
pub fn said(contender: &Contender, files: u64, ended: &Ended) -> Result<Option<Said>, Problem> {
    let name = &contender.name;
    if contender.is_program() {
        return Ok(None);
    }
    let said: Said = serde_json::from_str(&ended.said).map_err(|e| Problem::of(name, e))?;
    match said.entries == files {
        true => Ok(Some(said)),
        false => Err(Problem::Failed(format!(
            "{name} found {} entries instead of {files}: a directory that changes during the \
             bench cannot be measured",
            said.entries
        ))),
    }
}

/// The offsets of a contender's reads.
pub struct Seeks {
    pub name: String,
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
    fn chart(&self, files: &str, subtitle: &str) -> Chart {
        Chart {
            name: format!("dir-seeks-{}", self.name.replace('+', "-")),
            title: format!("{}: offsets of its reads, {files} files", self.name),
            subtitle: subtitle.into(),
            x: Axis::linear("s from the first read"),
            y: Axis::linear("offset on the disk, MiB"),
            lines: vec![Line {
                name: "reads".into(),
                points: self.points.clone(),
                stroke: Stroke::Dots,
            }],
            marks: Vec::new(),
        }
    }
}

/// Adds the cells, their tables and the charts. The base of the ratios is the fastest program.
pub fn complete(
    mut run: Run,
    cells: Vec<Cell>,
    contenders: &[Contender],
    seeks: &[Seeks],
    disk: Option<&str>,
) -> Run {
    let programs = contenders.iter().filter(|contender| contender.is_program());
    let programs: Vec<&str> = programs.map(|contender| contender.name.as_str()).collect();
    for mut cell in cells {
        let is_program = |c: &harness::cell::Contender| programs.contains(&c.name.as_str());
        let best = cell.name_best("files_per_s", is_program);
        run.add(cell, &[&best, "getdents+stat"], &COMPARED, &COLUMNS);
    }
    let subtitle = match disk {
        Some(disk) => {
            let filesystem = run.machine.filesystem.as_deref().unwrap_or_default();
            format!("{} cores, {filesystem}; {disk}", run.machine.cores)
        }
        None => run.machine.to_string(),
    };
    if run.cells.len() > 1 {
        run.charts.push(times(&run.cells, contenders, &subtitle));
    }
    let most = run
        .cells
        .last()
        .map_or(String::new(), |cell| cell.name.clone());
    let seeks = seeks.iter().map(|seeks| seeks.chart(&most, &subtitle));
    run.charts.extend(seeks);
    run
}

/// The time against the number of files.
fn times(cells: &[Cell], contenders: &[Contender], subtitle: &str) -> Chart {
    let line = |contender: &Contender| {
        let name = match contender.is_program() {
            true => format!("{} (dashed)", contender.name),
            false => contender.name.clone(),
        };
        let point = |cell: &Cell| {
            let seconds = cell.contender(&contender.name)?.figure("seconds")?;
            Some((cell.parameters["files"].as_f64()?, seconds))
        };
        let points = cells.iter().filter_map(point).collect();
        // There are more contenders than inks.
        Line::new(&name, points, !contender.is_program())
    };
    Chart {
        name: "dir".into(),
        title: "List a directory and ask about every entry".into(),
        subtitle: subtitle.into(),
        x: Axis::log("files"),
        y: Axis::log("s"),
        lines: contenders.iter().map(line).collect(),
        marks: Vec::new(),
    }
}
