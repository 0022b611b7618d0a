//! The line of statistics that a process writes when it exits.

use test_support::{Excuse, repeat};

use crate::common::{OURS, Program, Under};

#[test]
fn each_process_writes_one_line_for_every_way_to_exit() {
    let program = Program::compile("ends.c");
    let directory = tempfile::tempdir().unwrap();
    let stats = directory.path().join("stats");
    for case in program.cases() {
        program.run(&case, Under::Glibc, &[]).unwrap();
        for under in OURS {
            let _ = std::fs::remove_file(&stats);
            let env = [("NOWAIT_AIO_STATS", stats.to_str().unwrap())];
            let ran = program.run(&case, under, &env);
            ran.unwrap_or_else(|why| panic!("{case} under {under:?}: {why}"));
            let lines = std::fs::read_to_string(&stats).unwrap_or_default();
            assert_eq!(lines.lines().count(), 1, "{case} under {under:?}: {lines}");
            assert!(
                lines.contains("\"write\":{\"hits\":0,\"misses\":0,\"handoffs\":1}"),
                "{lines}"
            );
        }
    }
}

/// The number of reads of `tests/c/cold.c`.
const COLD_READS: u64 = 1500;

/// The number of reads of a case of `tests/c/cold.c` that were tried within aio_read(3).
fn tried(case: &str) -> u64 {
    let program = Program::compile("cold.c");
    let stats = program.directory().join("stats");
    let env = [("NOWAIT_AIO_STATS", stats.to_str().unwrap())];
    program.run(case, Under::Uring, &env).unwrap();
    let line = std::fs::read_to_string(&stats).unwrap();
    let (_, misses) = line.split_once("\"misses\":").unwrap();
    let misses: String = misses.chars().take_while(char::is_ascii_digit).collect();
    misses.parse().unwrap()
}

/// The history of the file says that tries fail. A try is made all the same, since it starts the device.
#[test]
fn cold_reads_are_tried_if_no_other_request_is_in_flight() {
    let beside = tried("beside_another_request");
    assert!(beside < COLD_READS / 2, "{beside}");
    // A try that was preempted looks like one that waited for the device: no other is made for a second.
    let alone = repeat("alone", &[Excuse::ChildPreempted], || {
        match tried("alone") {
            tried if tried == 0 || tried >= COLD_READS * 3 / 4 => Ok(tried),
            too_few => Err(too_few),
        }
    });
    if alone == 0 {
        slowdisk::skip_or_fail("RWF_NOWAIT in the target directory");
    }
}
