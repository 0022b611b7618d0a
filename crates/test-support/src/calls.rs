//! System calls of operations, counted in the log of a process under strace(1).

use std::path::Path;
use std::process::Command;

/// Marks the beginning or the end of an operation in the log: getppid(2).
pub fn mark() {
    let _ = rustix::process::getppid();
}

/// The most runs of a program. After a read of the page cache that took long, because the thread was preempted, reads make
/// more calls for a second.
const ATTEMPTS: u32 = 30;

/// Runs a program under strace(1) until each of its operations makes at most so many system calls. The program makes each
/// operation `times` times, in this order, with a [`mark`] before it and after it. The least count of an operation is
/// compared. `run` gets a command to which it adds the program and its arguments, and runs it.
///
/// # Panics
/// If an operation makes more calls in each of many runs.
pub fn at_most(most: &[(&str, usize)], times: usize, mut run: impl FnMut(Command)) {
    for attempt in 1.. {
        let logs = tempfile::tempdir().expect("a temporary directory");
        let log = logs.path().join("log");
        let mut command = Command::new("strace");
        command.args(["-D", "-f", "-qq", "--signal=none", "-o"]);
        command.arg(&log);
        run(command);
        let counts = between_marks(&log);
        assert_eq!(counts.len(), most.len() * times);
        let least = counts.chunks(times).filter_map(|times| times.iter().min());
        let counted = most.iter().zip(least.copied());
        let over: Vec<_> = counted.filter(|((_, most), count)| count > most).collect();
        if over.is_empty() {
            return;
        }
        assert!(attempt < ATTEMPTS, "{over:?}");
    }
}

/// As [`at_most`], for operations of the calling test: it is run again, alone, with this environment variable.
///
/// # Panics
/// As [`at_most`], and if the test fails.
pub fn at_most_in_this_test(
    most: &[(&str, usize)],
    times: usize,
    (variable, value): (&str, &Path),
) {
    at_most(most, times, |mut command| {
        command.arg(std::env::current_exe().expect("a test program"));
        // The test harness names each test's thread after the test.
        let thread = std::thread::current();
        command.arg(thread.name().expect("the name of a test"));
        command.args(["--exact", "--nocapture"]);
        let output = command.env(variable, value).output().expect("strace");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
    });
}

/// The calls of each operation: of the thread that has marked it. Those of other threads, which go to sleep, do not count.
fn between_marks(log: &Path) -> Vec<usize> {
    let log = std::fs::read(log).expect("strace writes a log");
    let log = String::from_utf8_lossy(&log);
    let thread = |line: &str| line.split(' ').next().map(str::to_owned);
    let is_mark = |line: &str| line.contains(" getppid(");
    let marking = log.lines().find(|line| is_mark(line)).and_then(thread);
    assert!(marking.is_some(), "no mark in the log of strace");
    // In debug builds the standard library asks for F_GETFD before it closes a descriptor.
    let is_call = |line: &&str| !line.contains("resumed>") && !line.contains("F_GETFD");
    let own = log.lines().filter(|line| thread(line) == marking);
    let (mut counts, mut so_far) = (Vec::new(), None);
    for line in own.filter(is_call) {
        so_far = match (is_mark(line), so_far) {
            (true, None) => Some(0),
            (true, Some(n)) => {
                counts.push(n);
                None
            }
            (false, so_far) => so_far.map(|n| n + 1),
        };
    }
    counts
}
