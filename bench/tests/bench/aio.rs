//! `nowait-bench aio`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{directory, drop_in, is_missing, nowait_bench, run};

fn aio(dir: &Path, args: &[&str]) -> Command {
    let mut command = nowait_bench(["aio"]);
    command.args(args).current_dir(dir);
    command
}

#[test]
fn runs_its_jobs_with_and_without_the_drop_in() {
    if is_missing(&["fio"]) {
        return;
    }
    let dir = directory();
    let library = drop_in();
    let library = library.to_str().unwrap();
    let rows = "random-warm-1,random-cold-32,mixed,mixed-paced,sequential,seed-cold,seed-warm";
    let mut command = aio(dir.path(), &["--size", "32M", "--seconds", "0.2"]);
    command.args(["--rounds", "3", "--rows", rows, "--library", library]);
    command.arg("--json");
    let stats = dir.path().join("stats");
    command.env("NOWAIT_AIO_STATS", &stats);
    let said = run(&mut command);
    assert_eq!(said.code, Some(0), "{said:?}");
    let report = said.json();
    assert_eq!(report["area"], "aio");
    let cells = report["cells"].as_array().unwrap();
    let names: Vec<&str> = cells
        .iter()
        .map(|cell| cell["name"].as_str().unwrap())
        .collect();
    let want = [
        "random-warm-1",
        "random-cold-32",
        "mixed cold",
        "mixed hot",
        "mixed-paced cold",
        "mixed-paced hot",
        "sequential",
        "seed-cold f1",
        "seed-cold f2",
        "seed-cold f3",
        "seed-warm f1",
        "seed-warm f2",
        "seed-warm f3",
    ];
    assert_eq!(names, want);
    for cell in cells {
        for (contender, name) in cell["contenders"]
            .as_array()
            .unwrap()
            .iter()
            .zip(["glibc", "nowait"])
        {
            assert_eq!(contender["name"], name);
            assert_eq!(contender["rounds"].as_array().unwrap().len(), 3);
            assert!(contender["median"]["ops_per_s"].as_f64() > Some(0.0));
        }
        let ratio = &cell["ratios"]["nowait/glibc"]["lat_us/p99"];
        assert!(ratio["median"].is_f64(), "{cell}");
    }
    // The drop-in was preloaded for its contender alone: it writes one line for each run.
    let lines = fs::read_to_string(stats).unwrap();
    assert_eq!(lines.lines().count(), 7 * 3, "{lines}");

    let mut command = aio(dir.path(), &["--size", "32M", "--seconds", "0.1"]);
    command.args(["--rounds", "1", "--rows", "seed-warm", "--library", library]);
    let said = run(&mut command).out;
    for words in [
        "seed-warm f1",
        "seed-warm f1, KB/s",
        "bw min",
        "seed-warm f1, % in",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn says_where_to_find_the_drop_in() {
    let dir = directory();
    let said = run(&mut aio(dir.path(), &["--library", "nowhere.so"]));
    assert_eq!(said.code, Some(1));
    let said = said.err;
    assert!(
        said.contains("nowhere.so") && said.contains("--library") || said.contains("fio"),
        "{said}"
    );
}
