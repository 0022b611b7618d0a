//! The line of statistics that a process writes when it exits.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use slowdisk::{Filesystem, SlowDisk, TestMount};
use test_support::{Excuse, repeat};

use crate::common::{OURS, Program, Under, run};

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

/// The number of reads of a case of `tests/c/cold.c` that were tried within aio_read(3), in a directory.
fn tried(program: &Program, case: &str, directory: &Path) -> u64 {
    let stats = directory.join("stats");
    let mut command = Command::new(&program.path);
    command.arg(case).current_dir(directory);
    command.env("NOWAIT_AIO_STATS", &stats);
    Under::Uring.prepare(&mut command);
    run(&mut command).unwrap();
    let line = std::fs::read_to_string(&stats).unwrap();
    std::fs::remove_file(&stats).unwrap();
    let (_, misses) = line.split_once("\"misses\":").unwrap();
    let misses: String = misses.chars().take_while(char::is_ascii_digit).collect();
    misses.parse().unwrap()
}

/// The history of the file says that tries fail. A try is made all the same, since it starts the device.
#[test]
fn cold_reads_are_tried_if_no_other_request_is_in_flight() {
    slowdisk::require!(slowdisk::available());
    slowdisk::require!(Filesystem::Ext4.available());
    // A fast device may complete the readahead that a try has started within the try, which is then a hit.
    let latency = Duration::from_millis(1);
    let disk = SlowDisk::builder().size(64 << 20).latency(latency);
    let disk = disk.build().unwrap();
    let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
    let program = Program::compile("cold.c");
    let tried = |case| tried(&program, case, mount.path());
    // A preempted try may hit, and it looks like one that waited for the device: no other is made for a second.
    let excuses = [Excuse::ChildPreempted];
    repeat("beside another request", &excuses, || {
        match tried("beside_another_request") {
            tried if tried < COLD_READS / 2 => Ok(()),
            too_many => Err(too_many),
        }
    });
    let alone = repeat("alone", &excuses, || match tried("alone") {
        tried if tried == 0 || tried >= COLD_READS * 3 / 4 => Ok(tried),
        too_few => Err(too_few),
    });
    if alone == 0 {
        slowdisk::skip_or_fail("RWF_NOWAIT");
    }
}
