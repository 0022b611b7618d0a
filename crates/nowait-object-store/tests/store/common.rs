//! Files, waiting, and child processes.

use std::path::{Path, PathBuf};
use std::process::Command;

pub use test_support::limit::wait_until;

/// A directory on a real filesystem.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Bytes that differ from page to page.
pub fn pattern(len: usize) -> Vec<u8> {
    let byte = |at: usize| (at ^ (at >> 8) ^ (at >> 16).wrapping_mul(31)) as u8;
    (0..len).map(byte).collect()
}

/// Makes a file of `len` such bytes.
pub fn patterned(dir: &Path, name: &str, len: usize) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, pattern(len)).unwrap();
    path
}

/// Drops a file's pages from the page cache.
pub fn evict(path: &Path) {
    slowdisk::evict(&std::fs::File::open(path).unwrap()).unwrap();
}

/// The files that this process has open below a directory, as /proc shows them.
pub fn open_below(dir: &Path) -> Vec<PathBuf> {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(dir)).collect()
}

/// The names in a directory, sorted.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Runs `body` in a process in which no other test runs: this program, with the calling test alone.
pub fn alone(body: impl FnOnce()) {
    if std::env::var_os("NOWAIT_TEST_ALONE").is_some() {
        return body();
    }
    // The test harness names each test's thread after the test.
    let thread = std::thread::current();
    let test = thread.name().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env("NOWAIT_TEST_ALONE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", output.status);
    assert!(text.contains("1 passed"), "no test {test}\n{text}");
}
