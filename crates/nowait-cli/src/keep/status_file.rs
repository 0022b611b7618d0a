//! The file in the runtime directory that has the status of a process, and which `--status` shows.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use nowait_page_cache::proc;
use serde_json::{Value, json};

use super::own_file::{self, OwnFile};
use super::status::Status;
use crate::messages::say;
use crate::name::DisplayPath;
use crate::output::Output;
use crate::problem::Problem;
use crate::terminal::Terminal;

/// The pause between two looks of [`wait`].
const LOOK: Duration = Duration::from_millis(50);

/// The mode of the file.
const PRIVATE: u32 = 0o600;

/// A file for this process, which is removed at its end. Files of processes that have ended are removed.
///
/// # Errors
/// If there is no directory for it.
pub fn create() -> io::Result<OwnFile> {
    let directory = directory()?;
    make(&directory)?;
    files(&directory)
        .iter()
        .for_each(|path| own_file::remove_left(path));
    let pid = std::process::id();
    let start = start_of(pid).unwrap_or(0);
    let path = directory.join(format!("{pid}-{start}.json"));
    Ok(OwnFile::new(path, PRIVATE))
}

/// Writes the status of this process.
///
/// # Errors
/// Of the system calls.
pub fn write(file: &mut OwnFile, status: &Status) -> io::Result<()> {
    let mut text = serde_json::to_vec(status)?;
    text.push(b'\n');
    file.write(&text)
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

/// The status files in a directory: PID-START.json.
fn files(directory: &Path) -> Vec<PathBuf> {
    let is_status = |name: &str| {
        let numbers = name.strip_suffix(".json")?.split_once('-')?;
        let is_number = |text: &str| proc::number(text.as_bytes()).is_some();
        (is_number(numbers.0) && is_number(numbers.1)).then_some(())
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .filter(|entry| entry.file_name().to_str().and_then(is_status).is_some())
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
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

/// The status of each process of this user that has looked at its files.
fn all() -> Vec<Status> {
    let found = directory().map(|directory| match is_ours(&directory) {
        true => files(&directory),
        false => Vec::new(),
    });
    let mut all = Vec::new();
    for path in found.unwrap_or_default() {
        if !own_file::is_in_use(&path) {
            continue;
        }
        match fs::read(&path).and_then(|text| Ok(serde_json::from_slice::<Status>(&text)?)) {
            Ok(status) => all.push(status),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => say(format_args!("nowait: {}: {e}", DisplayPath(&path))),
        }
    }
    all
}

/// Waits until a process of this user has looked at its files.
///
/// # Errors
/// None.
pub fn wait() -> Result<ExitCode, Problem> {
    while all().is_empty() {
        std::thread::sleep(LOOK);
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the status of all processes of this user.
///
/// # Errors
/// If the output cannot be written.
pub fn show(as_json: bool) -> Result<ExitCode, Problem> {
    let all = all();
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
    fn files_of_other_names_are_not_status_files() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["7-12.json", "notes.json", "7.json", "7-x.json", "7-12.text"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        assert_eq!(
            files(directory.path()),
            [directory.path().join("7-12.json")]
        );
        assert!(start_of(std::process::id()).is_some());
    }
}
