//! The results, as text and as JSON.

use std::fmt::{self, Display, Write};

use nowait::engine::Engine;
use serde::Serialize;
use serde::ser::SerializeMap;

use super::contender::Contender;
use super::file::DemoFile;
use super::turn::Figures;
use super::way::{BLOCK, Way};
use crate::interval::{Interval, middle};
use crate::problem::Problem;
use crate::size::Size;
use crate::terminal::Terminal;

/// The place of nowait in the table.
const NOWAIT: usize = Contender::ALL.len() - 1;

/// The version of the JSON.
const JSON_FORMAT: u32 = 1;

/// The results of all rounds.
#[derive(Serialize)]
pub struct Report {
    demo: u32,
    version: &'static str,
    path: String,
    temporary: bool,
    filesystem: Option<&'static str>,
    bytes: u64,
    block: u64,
    backend: Backend,
    pub cached: Option<Rows>,
    pub cold: Option<Rows>,
    pub why_not_cold: Option<String>,
    pub interrupted: bool,
}

/// The backend of nowait's engine, and the reason for it.
#[derive(Serialize)]
pub struct Backend {
    name: String,
    why: String,
}

impl Backend {
    /// That of an engine with the default options.
    pub fn tried() -> Result<Backend, Problem> {
        let engine = Engine::new()?;
        Ok(Backend {
            name: engine.backend().to_string(),
            why: engine.why().to_owned(),
        })
    }
}

/// The results of all contenders, in the order of the table.
pub struct Rows {
    rounds: usize,
    rows: [Row; Contender::ALL.len()],
}

/// The results of one contender.
#[derive(Serialize)]
struct Row {
    in_flight: usize,
    reads_per_s: Spread,
    latency_p50_ns: f64,
    latency_p99_ns: f64,
    blocked_p99_ns: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nowait_makes: Option<Interval>,
}

/// A figure of several rounds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// The spread of at least one value.
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.collect();
        Spread {
            median: middle(&mut values),
            min: values[0],
            max: values[values.len() - 1],
        }
    }
}

impl Rows {
    /// The results of these rounds. `None` if there are none.
    pub fn of(rounds: &[[Figures; Contender::ALL.len()]], way: Way) -> Option<Rows> {
        if rounds.is_empty() {
            return None;
        }
        let row = |index: usize| {
            let spread = |figure: fn(&Figures) -> f64| {
                Spread::of(rounds.iter().map(|turns| figure(&turns[index])))
            };
            let ratios =
                (rounds.iter()).map(|turns| turns[NOWAIT].reads_per_s / turns[index].reads_per_s);
            Row {
                in_flight: Contender::ALL[index].in_flight(way),
                reads_per_s: spread(|figures| figures.reads_per_s),
                latency_p50_ns: spread(|figures| figures.latency_p50_ns.into()).median,
                latency_p99_ns: spread(|figures| figures.latency_p99_ns.into()).median,
                blocked_p99_ns: spread(|figures| figures.blocked_p99_ns.into()).median,
                nowait_makes: (index != NOWAIT)
                    .then(|| Interval::of(&mut ratios.collect::<Vec<_>>())),
            }
        };
        Some(Rows {
            rounds: rounds.len(),
            rows: std::array::from_fn(row),
        })
    }
}

impl Serialize for Rows {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + self.rows.len()))?;
        map.serialize_entry("rounds", &self.rounds)?;
        for (contender, row) in Contender::ALL.into_iter().zip(&self.rows) {
            map.serialize_entry(contender.name(), row)?;
        }
        map.end()
    }
}

impl Report {
    /// A report without results.
    pub fn new(path: impl Display, file: &DemoFile, backend: Backend) -> Report {
        Report {
            demo: JSON_FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            path: path.to_string(),
            temporary: file.temporary,
            filesystem: file.filesystem(),
            bytes: file.bytes,
            block: BLOCK,
            backend,
            cached: None,
            cold: None,
            why_not_cold: None,
            interrupted: false,
        }
    }

    /// The report as JSON.
    pub fn json(&self) -> Result<String, Problem> {
        serde_json::to_string_pretty(self).map_err(|e| Problem::of("JSON", e))
    }

    /// The report as text.
    pub fn text(&self, terminal: Terminal) -> String {
        let mut page = Page {
            text: String::new(),
            terminal,
        };
        let of = match self.temporary {
            true => format!("a temporary file in {}", self.path),
            false => self.path.clone(),
        };
        page.paragraph(&format!(
            "Reads of {} at random places of {of} ({} on {}). The backend of nowait is {}: {}.",
            Size(self.block),
            Size(self.bytes),
            self.filesystem.unwrap_or("an unknown filesystem"),
            self.backend.name,
            self.backend.why,
        ));
        let mut rounds = 0;
        for (way, rows) in [(Way::Cached, &self.cached), (Way::Cold, &self.cold)] {
            if let Some(rows) = rows {
                page.table(way, rows);
                rounds = rounds.max(rows.rounds);
            }
        }
        if let Some(why) = &self.why_not_cold {
            page.paragraph(&format!("\nReads from the disk were not measured: {why}."));
        }
        page.paragraph(&format!(
            "\nblocked: the time for which a read keeps the calling thread from other work (p99). nowait \
             makes: its reads per second, divided by those of the row; median of {rounds} rounds, and its 95 % confidence \
             interval."
        ));
        page.paragraph(match self.cold {
            Some(_) => {
                "\nnowait serves a cached read in the calling thread, without a switch to another \
                 thread, and a read from the disk does not block the calling thread. For a program \
                 that may wait, pread is enough."
            }
            None => {
                "\nnowait serves a cached read in the calling thread, without a switch to another \
                 thread."
            }
        });
        if self.interrupted {
            page.paragraph("\nInterrupted.");
        }
        page.text
    }
}

/// The name of a contender in a table.
pub fn label(contender: Contender, way: Way) -> String {
    match (contender, way) {
        (Contender::Pread, Way::Cached) => "pread".into(),
        (Contender::Pread, Way::Cold) => "pread, one at a time".into(),
        (Contender::Threads, _) => "pool of threads".into(),
        (Contender::Nowait, _) => "nowait".into(),
    }
}

/// The width of the text in columns.
const WIDTH: usize = 80;
/// The width of a table with all its columns.
const TABLE: usize = 79;

/// Text that is being written. Writing to a `String` cannot fail.
struct Page {
    text: String,
    terminal: Terminal,
}

impl Page {
    fn paragraph(&mut self, text: &str) {
        let width = self.terminal.width.min(WIDTH);
        let _ = writeln!(self.text, "{}", textwrap::fill(text, width));
    }

    fn table(&mut self, way: Way, rows: &Rows) {
        let wide = self.terminal.width >= TABLE;
        let heading = match way {
            Way::Cached => "Cached, one at a time".into(),
            Way::Cold => format!("Not cached, {} at once", way.in_flight()),
        };
        let bold = |text| match self.terminal.colour {
            true => format!("\x1b[1m{text}\x1b[0m"),
            false => text,
        };
        let _ = write!(
            self.text,
            "\n{}{:>10}",
            bold(format!("{heading:22}")),
            "reads/s"
        );
        if wide {
            let _ = write!(self.text, "{:>9}{:>9}{:>9}", "median", "p99", "blocked");
        }
        let _ = writeln!(self.text, "  nowait makes");
        for (contender, row) in Contender::ALL.into_iter().zip(&rows.rows) {
            let label = label(contender, way);
            let rate = Thousands(row.reads_per_s.median).to_string();
            let _ = write!(self.text, "  {label:20}{rate:>10}");
            if wide {
                for ns in [row.latency_p50_ns, row.latency_p99_ns, row.blocked_p99_ns] {
                    let _ = write!(self.text, "{:>9}", time(ns, self.terminal.unicode));
                }
            }
            if let Some(ratio) = row.nowait_makes {
                let _ = write!(self.text, "  {}", times(ratio));
            }
            self.text.push('\n');
        }
    }
}

/// A whole number of three significant digits, with commas between thousands.
pub struct Thousands(pub f64);

impl Display for Thousands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.max(1.0).log10() as i32;
        let unit = 10_f64.powi((digits - 2).max(0));
        let number = ((self.0 / unit).round() * unit) as u64;
        let digits = number.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_char(',')?;
            }
            f.write_char(digit)?;
        }
        Ok(())
    }
}

/// A time with two or three significant digits.
fn time(ns: f64, unicode: bool) -> String {
    let us = if unicode { "µs" } else { "us" };
    match ns {
        ..9_950.0 => format!("{:.1} {us}", ns / 1e3),
        ..999_500.0 => format!("{:.0} {us}", ns / 1e3),
        ..9_950_000.0 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.0} ms", ns / 1e6),
    }
}

/// A ratio and its interval. An interval that contains 1 shows no difference.
fn times(ratio: Interval) -> String {
    if ratio.verdict(true).is_none() {
        return "no difference".into();
    }
    let digits = |ratio: f64| match ratio {
        ..9.995 => format!("{ratio:.2}"),
        ..99.95 => format!("{ratio:.1}"),
        _ => format!("{ratio:.0}"),
    };
    let [median, low, high] = [ratio.median, ratio.low95, ratio.high95].map(digits);
    format!("{median} x ({low}-{high})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let shown = |number: f64| Thousands(number).to_string();
        assert_eq!(shown(812_345.0), "812,000");
        assert_eq!(shown(999.6), "1,000");
        assert_eq!(shown(1_234_567.0), "1,230,000");
        assert_eq!(shown(0.2), "0");
        assert_eq!(time(1_234.0, true), "1.2 µs");
        assert_eq!(time(207_300.0, false), "207 us");
        assert_eq!(time(12_400_000.0, true), "12 ms");
    }

    #[test]
    fn an_interval_that_contains_1_shows_no_difference() {
        let ratio = |values: &[f64]| times(Interval::of(&mut values.to_vec()));
        assert_eq!(ratio(&[1.33, 0.86, 1.35]), "no difference");
        assert_eq!(ratio(&[0.7, 0.8]), "0.75 x (0.70-0.80)");
        assert_eq!(ratio(&[26.04, 24.0, 130.0]), "26.0 x (24.0-130)");
        // The lowest and the highest of nine are outside of the interval.
        let nine = [0.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        assert_eq!(ratio(&nine), "5.00 x (2.00-8.00)");
        assert_eq!(ratio(&nine[..8]), "no difference");
    }
}
