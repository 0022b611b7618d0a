//! The exports of the library: the functions of <aio.h>, _exit and _Exit, without versions.

use std::process::Command;

use crate::common::{Program, Under};

/// The names that it may export.
const EXPORTS: [&str; 19] = [
    "_Exit",
    "_exit",
    "aio_cancel",
    "aio_cancel64",
    "aio_error",
    "aio_error64",
    "aio_fsync",
    "aio_fsync64",
    "aio_init",
    "aio_read",
    "aio_read64",
    "aio_return",
    "aio_return64",
    "aio_suspend",
    "aio_suspend64",
    "aio_write",
    "aio_write64",
    "lio_listio",
    "lio_listio64",
];

fn output_of(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .arg(crate::common::library())
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}; apt-get install binutils"));
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn it_exports_the_functions_of_aio_h_and_exit_and_nothing_else() {
    let listed = output_of("nm", &["-D", "--defined-only"]);
    let mut names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    names.sort_unstable();
    // A version would follow an @. References of programs have glibc's version, and would not bind to
    // another.
    assert_eq!(names, EXPORTS);
}

#[test]
fn it_defines_no_version_and_stays_loaded() {
    let sections = output_of("readelf", &["-V", "--wide"]);
    assert!(!sections.contains("version definition"), "{sections}");
    let dynamic = output_of("readelf", &["-d", "--wide"]);
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    assert!(dynamic.contains("[libnowait_aio.so.0]"), "{dynamic}");
}

#[test]
fn references_of_old_programs_bind_to_it() {
    let program = Program::compile("old_versions.c");
    let directory = tempfile::tempdir().unwrap();
    let stats = directory.path().join("stats");
    for case in program.cases() {
        let env = [("NOWAIT_AIO_STATS", stats.to_str().unwrap())];
        program.run(&case, Under::Uring, &env).unwrap();
        program.run(&case, Under::Glibc, &[]).unwrap();
    }
    // Each process that has used the library has written a line.
    let lines = std::fs::read_to_string(stats).unwrap();
    assert_eq!(lines.lines().count(), program.cases().len(), "{lines}");
}
