//! The opens of a program, counted by strace(1), and trees that are deeper than any path may be long.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

/// A command to which a program and its arguments are added. It writes the program's opens into `log`. The process is that
/// of the program, and strace(1) is no parent of it. An error if strace(1) is missing.
///
/// # Errors
/// The reason to skip a test.
pub fn traced(log: &Path) -> Result<Command, String> {
    if Command::new("strace").arg("-V").output().is_err() {
        return Err("strace is missing (Debian package strace)".into());
    }
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "--seccomp-bpf", "-qq", "--signal=none"]);
    command.args(["-e", "trace=open,openat,openat2", "-o"]);
    command.arg(log);
    Ok(command)
}

/// The number of opens in a log.
///
/// # Panics
/// If the log cannot be read.
pub fn count(log: &Path) -> usize {
    let log = fs::read(log).expect("a log");
    let log = String::from_utf8_lossy(&log);
    // The second half of a call that another thread has interrupted is no call.
    let begun = log.lines().filter(|line| !line.contains("resumed>"));
    begun.count()
}

/// The highest descriptor in a log. The kernel gives the lowest that is free.
///
/// # Panics
/// If the log cannot be read, or no open has succeeded.
pub fn highest_descriptor(log: &Path) -> u32 {
    let log = fs::read(log).expect("a log");
    let log = String::from_utf8_lossy(&log);
    let results = log.lines().filter_map(|line| line.rsplit_once(" = "));
    let numbers = results.filter_map(|(_, result)| result.trim().parse().ok());
    numbers.max().expect("an open")
}

/// Makes a chain of directories. Each has a sibling, so that a walk comes back to every level. One level in `files` has a
/// file of 4,096 bytes.
///
/// # Panics
/// If a directory or file cannot be made.
pub fn plant(root: &Path, levels: usize, files: usize) {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, root, flags, Mode::empty()).expect("open");
    for level in 0..levels {
        let names = match level % 2 {
            0 => ["a", "b"],
            _ => ["b", "a"],
        };
        for name in names {
            mkdirat(&at, name, 0o700.into()).expect("mkdir");
        }
        if level % files == 0 {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = openat(&at, "file", flags, 0o600.into()).expect("a new file");
            rustix::io::write(&file, &[7; 4096]).expect("write");
        }
        at = openat(&at, "a", flags, Mode::empty()).expect("open");
    }
}

/// Removes a deep tree. The standard library cannot: it holds a descriptor for each level.
///
/// # Panics
/// If that fails.
pub fn remove(root: &Path) {
    let removed = Command::new("rm").arg("-rf").arg(root).status();
    assert!(removed.expect("rm").success());
}
