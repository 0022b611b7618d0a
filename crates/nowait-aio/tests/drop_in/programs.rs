//! Other programs with the library preloaded: fio, which verifies every byte, and stress-ng.

use std::process::Command;

use crate::common::{OURS, run};

/// A program; `None` if it is not installed.
fn program(name: &str, package: &str) -> Option<Command> {
    let is_installed = Command::new(name).arg("--version").output().is_ok();
    if !is_installed {
        let missing = format!("{name} is not installed: apt-get install {package}");
        assert!(std::env::var_os("NOWAIT_TEST_ALL").is_none(), "{missing}");
        eprintln!("skipped: {missing}");
    }
    is_installed.then(|| Command::new(name))
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn fio_verifies_what_it_wrote() {
    for under in OURS {
        let directory = directory();
        let stats = directory.path().join("stats");
        let Some(mut fio) = program("fio", "fio") else {
            return;
        };
        fio.current_dir(&directory).env("NOWAIT_AIO_STATS", &stats);
        fio.args(["--ioengine=posixaio", "--size=32M", "--filename=data"]);
        fio.args(["--verify=crc32c", "--verify_fatal=1", "--iodepth=32"]);
        fio.args(["--name=random", "--rw=randwrite", "--bs=512-64k"]);
        fio.args(["--bs_unaligned=0", "--fsync=50"]);
        fio.args(["--name=mixed", "--stonewall", "--rw=randrw", "--bs=4k"]);
        fio.args(["--invalidate=1", "--thread"]);
        under.prepare(&mut fio);
        run(&mut fio).unwrap_or_else(|why| panic!("{under:?}: {why}"));
        let used = std::fs::read_to_string(stats).unwrap();
        assert!(used.contains("\"write\":{"), "{used}");
    }
}

#[test]
fn stress_ng_finds_nothing() {
    for under in OURS {
        let directory = directory();
        let Some(mut stress) = program("stress-ng", "stress-ng") else {
            return;
        };
        stress.current_dir(&directory);
        stress.args(["--aio", "4", "--aio-requests", "64", "--timeout", "4"]);
        stress.args(["--verify", "--metrics-brief"]);
        under.prepare(&mut stress);
        run(&mut stress).unwrap_or_else(|why| panic!("{under:?}: {why}"));
    }
}
