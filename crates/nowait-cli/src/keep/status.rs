//! The status of a running `nowait keep`: a file in the runtime directory, which `--status` shows.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use nowait_page_cache::proc;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::pressure::Pressure;
use super::root::Root;
use crate::messages::say;
use crate::name::{plural, text_and_hex};
use crate::output::Output;
use crate::problem::Problem;
use crate::size::Size;
use crate::terminal::Terminal;

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
    /// The sums over the files of a path.
    pub fn of(root: &Root) -> PathStatus {
        use std::os::unix::ffi::OsStrExt;
        let (path, path_hex) = text_and_hex(root.path.as_os_str().as_bytes());
        let mut numbers = Numbers {
            read: root.read,
            read_again_estimated: root.read_again,
            ..Numbers::default()
        };
        let mut unknown = None;
        for (_, _, entry) in root.entries() {
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

    /// Sets the limits. `watched`: pressure is reported by the kernel.
    pub fn limits(mut self, budget: u64, limit: u64, pressure: &Pressure, watched: bool) -> Status {
        self.budget = budget;
        self.limit = limit;
        self.pressure = (watched || pressure.reports > 0).then_some(pressure.reports);
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

    fn print(&self, out: &mut Output) -> io::Result<()> {
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
            // The path was made printable for JSON alone.
            row(
                &path.numbers,
                &crate::name::DisplayPath(Path::new(&path.path)).to_string(),
            )?;
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
            writeln!(out, "unknown: {files} ({size}) of {}: {why}", path.path)?;
        }
        Ok(())
    }
}

/// A file of this process, which is removed at its end.
pub struct StatusFile(PathBuf);

impl StatusFile {
    /// Chooses the name. Files of processes that have ended are removed.
    ///
    /// # Errors
    /// If there is no directory for it.
    pub fn new() -> io::Result<StatusFile> {
        let directory = directory()?;
        make(&directory)?;
        for (path, name) in files(&directory) {
            if !is_running(&name) {
                let _ = fs::remove_file(path);
            }
        }
        let pid = std::process::id();
        let start = start_of(pid).unwrap_or(0);
        Ok(StatusFile(directory.join(format!("{pid}-{start}.json"))))
    }

    /// Replaces the contents.
    ///
    /// # Errors
    /// Of the system calls.
    pub fn write(&self, status: &Status) -> io::Result<()> {
        let mut text = serde_json::to_vec(status)?;
        text.push(b'\n');
        replace(&self.0, &text, 0o600)
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes a file beside the old one, and renames it.
///
/// # Errors
/// Of the system calls.
pub fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut file = tempfile::Builder::new()
        .prefix(".nowait-keep-")
        .permissions(fs::Permissions::from_mode(mode))
        .tempfile_in(directory)?;
    file.write_all(text)?;
    // The mask of the process does not apply.
    file.as_file()
        .set_permissions(fs::Permissions::from_mode(mode))?;
    file.persist(path)?;
    Ok(())
}

/// The directory of the status files of this user.
fn directory() -> io::Result<PathBuf> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return Ok("/run/nowait/keep".into());
    }
    Ok(match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory).join("nowait/keep"),
        _ => std::env::temp_dir().join(format!("nowait-keep-{}", user.as_raw())),
    })
}

/// Makes the directory. Other users may write to /tmp: a directory of theirs is refused.
fn make(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    match is_ours(directory) {
        true => Ok(()),
        false => Err(io::Error::other("the directory belongs to another user")),
    }
}

fn is_ours(directory: &Path) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(directory).is_ok_and(|stat| stat.is_dir() && stat.uid() == ours)
}

/// The status files in a directory, by their names.
fn files(directory: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((entry.path(), name.strip_suffix(".json")?.to_owned()))
        })
        .collect();
    files.sort();
    files
}

/// Returns true if the process of a file runs: PID-START.
fn is_running(name: &str) -> bool {
    let numbers = name.split_once('-');
    let numbers = numbers.and_then(|(pid, start)| Some((pid.parse().ok()?, start.parse().ok()?)));
    numbers.is_some_and(|(pid, start): (u32, u64)| start_of(pid) == Some(start))
}

/// The time at which a process was started, in ticks since the start of the system.
fn start_of(pid: u32) -> Option<u64> {
    let stat = proc::read(format!("/proc/{pid}/stat"));
    // The name of the program stands in parentheses and may have any bytes.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut words = stat[end + 1..]
        .split(u8::is_ascii_whitespace)
        .filter(|w| !w.is_empty());
    proc::number(words.nth(19)?)
}

/// Shows the status of all processes of this user.
///
/// # Errors
/// If the output cannot be written.
pub fn show(as_json: bool) -> Result<ExitCode, Problem> {
    let found = directory().map(|directory| match is_ours(&directory) {
        true => files(&directory),
        false => Vec::new(),
    });
    let mut all = Vec::new();
    for (path, name) in found.unwrap_or_default() {
        if !is_running(&name) {
            continue;
        }
        match fs::read(&path).and_then(|text| Ok(serde_json::from_slice::<Status>(&text)?)) {
            Ok(status) => all.push(status),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => say(format_args!("nowait: {}: {e}", path.display())),
        }
    }
    let mut out = Output::new(Terminal::look());
    if as_json {
        let instances = serde_json::to_value(&all).unwrap_or(Value::Null);
        let version = env!("CARGO_PKG_VERSION");
        let report = json!({"keep": 1, "version": version, "instances": instances});
        writeln!(out, "{report:#}")?;
    } else {
        for status in &all {
            status.print(&mut out)?;
        }
        if !all.is_empty() {
            writeln!(out, "~: estimated, as of the last sweep")?;
        }
    }
    out.flush()?;
    if all.is_empty() {
        say("nowait: no `nowait keep` of this user runs");
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let pid = std::process::id();
        let start = start_of(pid).unwrap();
        assert!(is_running(&format!("{pid}-{start}")));
        assert!(!is_running(&format!("{pid}-{}", start + 1)));
        for name in ["", "1", "-", "x-1", "4294967295-1"] {
            assert!(!is_running(name), "{name}");
        }
    }

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "longer text").unwrap();
        replace(&path, b"text", 0o644).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"text");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }
}
