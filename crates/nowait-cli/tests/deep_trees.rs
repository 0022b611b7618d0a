//! Trees that are deeper than any path may be long: the number of opens, and the results.

use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

/// The number of levels.
const LEVELS: usize = 32_768;
/// Every such level has a file.
const FILES: usize = 512;

/// Makes a chain of directories. Each has a sibling, so that a walk comes back to every level.
fn plant(root: &Path) {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, root, flags, Mode::empty()).unwrap();
    for level in 0..LEVELS {
        let names = if level % 2 == 0 {
            ["a", "b"]
        } else {
            ["b", "a"]
        };
        for name in names {
            mkdirat(&at, name, 0o700.into()).unwrap();
        }
        if level % FILES == 0 {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = openat(&at, "file", flags, 0o600.into()).unwrap();
            rustix::io::write(&file, &[7; 4096]).unwrap();
        }
        at = openat(&at, "a", flags, Mode::empty()).unwrap();
    }
}

/// Runs the program under strace(1). Returns its output and the number of opens.
fn traced(arguments: &[&str], root: &Path) -> (Output, usize) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args([
        "-f",
        "--seccomp-bpf",
        "-qq",
        "--signal=none",
        "-e",
        "trace=open,openat,openat2",
        "-o",
    ]);
    command
        .arg(log.path())
        .arg(env!("CARGO_BIN_EXE_nowait"))
        .args(arguments)
        .arg(root);
    let output = command.output().unwrap();
    let log = std::fs::read_to_string(log.path()).unwrap();
    // The second half of a call that another thread has interrupted is no call.
    let opens = log
        .lines()
        .filter(|line| !line.contains("resumed>"))
        .count();
    (output, opens)
}

#[test]
fn each_directory_of_32768_levels_is_opened_at_most_twice() {
    if Command::new("strace").arg("-V").output().is_err() {
        return slowdisk::skip_or_fail("strace is missing (Debian package strace)");
    }
    let root = tempfile::tempdir().unwrap();
    plant(root.path());
    let directories = 2 * LEVELS;
    let files = LEVELS / FILES;
    let entries = directories + files;
    for (arguments, expected) in [
        (&["scan", "-r", "--format", "%f"][..], entries),
        (&["du", "-d", "10"], 21),
        (&["warm", "--metadata"], 1),
        (&["warm"], 0),
        (&["fincore", "--json"], 0),
        (&["evict"], 0),
    ] {
        let (output, opens) = traced(arguments, root.path());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text:.2000}");
        assert!(text.is_empty(), "{arguments:?}: {text:.2000}");
        if expected > 0 {
            let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(lines, expected, "{arguments:?}");
        }
        // The program itself, and each file, needs some more.
        let most = 2 * directories + 100 + 20 * files;
        assert!(
            opens <= most,
            "{arguments:?}: {opens} opens of {directories} directories"
        );
        eprintln!("{arguments:?}: {opens} opens");
    }
    // The standard library cannot remove such a tree: it holds a descriptor for each level.
    let removed = Command::new("rm")
        .arg("-rf")
        .arg(root.path())
        .status()
        .unwrap();
    assert!(removed.success());
}
