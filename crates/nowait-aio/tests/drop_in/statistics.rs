//! The line of statistics that a process writes when it exits.

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
