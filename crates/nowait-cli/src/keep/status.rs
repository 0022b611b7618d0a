//! The status of a running `nowait keep`: the numbers of its paths, and the table of `--status`.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::root::Root;
use crate::name::{DisplayPath, plural, text_and_hex};
use crate::output::Output;
use crate::size::Size;

/// The numbers of a path, or their sums. Sizes are in bytes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Numbers {
    pub files: u64,
    pub size: u64,
    pub budget: u64,
    pub resident_estimated: u64,
    pub locked: u64,
    pub read: u64,
    pub read_again_estimated: u64,
    pub unknown_files: u64,
    pub unknown_size: u64,
    pub failed: u64,
}

/// The status of a path.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PathStatus {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
    #[serde(flatten)]
    pub numbers: Numbers,
    /// The reason of the first file whose residency is unknown.
    pub unknown: Option<String>,
}

/// The status of a process.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Status {
    pub pid: u32,
    pub mode: String,
    pub started: u64,
    pub swept: u64,
    pub next_sweep: u64,
    pub budget_given: String,
    pub budget: u64,
    pub limit: u64,
    pub pressure: Option<u64>,
    pub unwatched_directories: u64,
    pub paths: Vec<PathStatus>,
    pub total: Numbers,
}

impl Numbers {
    fn add(&mut self, more: &Numbers) {
        let sums = [
            (&mut self.files, more.files),
            (&mut self.size, more.size),
            (&mut self.budget, more.budget),
            (&mut self.resident_estimated, more.resident_estimated),
            (&mut self.locked, more.locked),
            (&mut self.read, more.read),
            (&mut self.read_again_estimated, more.read_again_estimated),
            (&mut self.unknown_files, more.unknown_files),
            (&mut self.unknown_size, more.unknown_size),
            (&mut self.failed, more.failed),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }
}

impl PathStatus {
    /// The sums over the files of a path. A file with several names, or below several paths, counts once,
    /// at its first place.
    pub fn of(root: &Root) -> PathStatus {
        let (path, path_hex) = text_and_hex(root.path.as_os_str().as_bytes());
        let mut numbers = Numbers {
            read: root.read,
            read_again_estimated: root.read_again,
            ..Numbers::default()
        };
        let mut unknown = None;
        for (_, _, entry) in root.entries().filter(|(_, _, entry)| !entry.again) {
            numbers.add(&Numbers {
                files: 1,
                size: entry.size,
                budget: entry.planned,
                resident_estimated: entry.resident.min(entry.planned),
                locked: entry.locked(),
                unknown_files: u64::from(entry.unknown.is_some()),
                unknown_size: entry.unknown.map_or(0, |_| entry.size),
                failed: u64::from(entry.failed),
                ..Numbers::default()
            });
            if let (None, Some(why)) = (&unknown, entry.unknown) {
                unknown = Some(why.to_string());
            }
        }
        PathStatus {
            path: path.into_owned(),
            path_hex,
            numbers,
            unknown,
        }
    }

    /// The path, printable on a terminal.
    fn shown(&self) -> String {
        DisplayPath(Path::new(&self.path)).to_string()
    }
}

/// The seconds since 1970 of a time.
fn seconds(time: Instant) -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let at = match time.checked_duration_since(Instant::now()) {
        Some(later) => now + later,
        None => now.saturating_sub(time.elapsed()),
    };
    at.as_secs()
}

impl Status {
    /// The status of this process.
    pub fn new(locks: bool, budget_given: String, paths: Vec<PathStatus>) -> Status {
        let mut total = Numbers::default();
        paths.iter().for_each(|path| total.add(&path.numbers));
        Status {
            pid: std::process::id(),
            mode: if locks { "lock" } else { "touch" }.into(),
            budget_given,
            paths,
            total,
            ..Status::default()
        }
    }

    /// Sets the times.
    pub fn times(mut self, started: Instant, swept: Instant, next_sweep: Instant) -> Status {
        self.started = seconds(started);
        self.swept = seconds(swept);
        self.next_sweep = seconds(next_sweep);
        self
    }

    /// Sets the limits, and the number of reports of memory pressure.
    pub fn limits(mut self, budget: u64, limit: u64, pressure: Option<u64>) -> Status {
        self.budget = budget;
        self.limit = limit;
        self.pressure = pressure;
        self
    }

    /// One line for the service manager.
    pub fn line(&self) -> String {
        format!(
            "{} of {} resident in {}; the budget is {}",
            Size(self.total.resident_estimated),
            Size(self.total.size),
            plural(self.total.files, "file"),
            Size(self.limit)
        )
    }

    /// Prints a table.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let since = now.as_secs().saturating_sub(self.swept);
        write!(
            out,
            "process {}, --{}: budget {}",
            self.pid,
            self.mode,
            Size(self.budget)
        )?;
        if self.limit < self.budget {
            write!(out, ", {} because of memory pressure", Size(self.limit))?;
        }
        writeln!(out, "; swept {since} s ago")?;
        if self.unwatched_directories > 0 {
            let directories = plural(self.unwatched_directories, "directory");
            writeln!(out, "{directories} not watched: sweeps find the changes")?;
        }
        writeln!(
            out,
            "{:>7} {:>9} {:>7} {:>7} {:>11} PATH",
            "SIZE", "RESIDENT~", "LOCKED", "BUDGET", "READ AGAIN~"
        )?;
        let size = |bytes| Size(bytes).to_string();
        let mut row = |numbers: &Numbers, name: &str| {
            writeln!(
                out,
                "{:>7} {:>9} {:>7} {:>7} {:>11} {name}",
                size(numbers.size),
                size(numbers.resident_estimated),
                size(numbers.locked),
                size(numbers.budget),
                size(numbers.read_again_estimated)
            )
        };
        for path in &self.paths {
            row(&path.numbers, &path.shown())?;
        }
        row(
            &self.total,
            &format!("total of {}", plural(self.total.files, "file")),
        )?;
        for path in self
            .paths
            .iter()
            .filter(|path| path.numbers.unknown_files > 0)
        {
            let files = plural(path.numbers.unknown_files, "file");
            let why = path.unknown.as_deref().unwrap_or("");
            let size = Size(path.numbers.unknown_size);
            writeln!(out, "unknown: {files} ({size}) of {}: {why}", path.shown())?;
        }
        Ok(())
    }
}
