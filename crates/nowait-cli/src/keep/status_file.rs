//! The file in the runtime directory that has the status of a process, and which `--status` shows.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nowait_page_cache::proc;
use serde_json::{Value, json};

use super::status::Status;
use crate::messages::say;
use crate::output::Output;
use crate::problem::Problem;
use crate::terminal::Terminal;

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
