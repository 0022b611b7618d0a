//! Directories to scan, and the expected results.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use nowait::StatxMask;
use nowait::engine::{Engine, Options as EngineOptions};
use nowait::scan::{DirEntry, Options, Scan};
use rustix::fs::OFlags;

use crate::common::backends::backends;
use crate::common::by_workers::by_workers;

/// An engine on each backend.
pub fn engines() -> Vec<Engine> {
    let engine = |backend| EngineOptions::new().backend(backend).build().unwrap();
    backends().into_iter().map(engine).collect()
}

/// Makes `n` empty files: `prefix` and a number.
pub fn fill(dir: &Path, prefix: &str, n: usize) {
    fs::create_dir_all(dir).unwrap();
    let dir = fs::File::open(dir).unwrap();
    for i in 0..n {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&dir, format!("{prefix}{i}"), flags, 0o600.into()).unwrap();
    }
}

/// The names that the standard library lists, with their inode numbers.
pub fn listed(dir: &Path) -> BTreeMap<OsString, u64> {
    use std::os::unix::fs::DirEntryExt;
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name(), entry.ino())
    };
    fs::read_dir(dir).unwrap().map(entry).collect()
}

/// The names that a scan returns, with their inode numbers.
///
/// # Panics
/// If the scan returns a name twice, or an error.
pub fn scanned(scan: Scan) -> BTreeMap<OsString, u64> {
    names_of(scan)
}

/// The same of a scan that is left to workers.
pub fn scanned_by_workers(mut scan: Scan) -> BTreeMap<OsString, u64> {
    names_of(by_workers(&mut scan))
}

fn names_of(entries: impl Iterator<Item = nowait::Result<DirEntry>>) -> BTreeMap<OsString, u64> {
    let mut seen = BTreeMap::new();
    for entry in entries {
        let entry = entry.unwrap();
        let twice = seen.insert(entry.file_name().to_owned(), entry.ino());
        assert_eq!(twice, None, "{} came twice", entry.file_name().display());
    }
    seen
}

/// Checks that the names are the same, and names those that differ.
pub fn assert_same(seen: &BTreeMap<OsString, u64>, expected: &BTreeMap<OsString, u64>, what: &str) {
    if seen == expected {
        return;
    }
    let missing: Vec<_> = expected
        .iter()
        .filter(|e| seen.get(e.0) != Some(e.1))
        .take(5)
        .collect();
    let strange: Vec<_> = seen
        .iter()
        .filter(|e| expected.get(e.0) != Some(e.1))
        .take(5)
        .collect();
    panic!(
        "{what}: {} instead of {}; missing {missing:?}, not to be there {strange:?}",
        seen.len(),
        expected.len()
    );
}

/// Options that ask for the basic metadata.
pub fn with_metadata() -> Options {
    Options::new().metadata(StatxMask::BASIC_STATS)
}

/// The number of threads of this process.
pub fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// The number of workers of this process's engines.
pub fn workers() -> usize {
    let name = |task: std::io::Result<fs::DirEntry>| {
        // The thread may have ended.
        fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    };
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks
        .map(name)
        .filter(|name| name == "nowait-worker\n")
        .count()
}
