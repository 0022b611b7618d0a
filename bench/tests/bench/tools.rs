//! `nowait-bench tools`: its tables, the programs that it runs, and the removal of its files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::common::{
    Said, assert_nothing_is_left, assert_shape, bench, cells_of, directory, is_missing, report,
    rounds_of, row, rows, run, spawned, until,
};

/// A shell script that stands for a program.
fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// PATH, with another directory in front.
fn path_with(dir: &Path) -> String {
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap())
}

/// The most of the bytes that a contender left cached. Another test may drop the caches in between.
fn most_cached(row: &Value) -> Option<f64> {
    let rounds = rounds_of(row).iter();
    let cached = rounds.filter_map(|round| round["cached_percent"].as_f64());
    cached.reduce(f64::max)
}

#[test]
fn each_table_has_its_files_and_contenders() {
    slowdisk::require!(slowdisk::available());
    if is_missing(&["vmtouch", "fincore"]) {
        return;
    }
    let here = directory();
    let all = report(here.path(), "tools --scale 0.002");
    assert_nothing_is_left(here.path());
    let cells = "fincore: nowait vmtouch fincore
                 tiny: nowait vmtouch fincore
                 warm: nowait vmtouch cat
                 small: nowait vmtouch cat";
    assert_shape(&all, "tools", 3, cells);
    let cells = cells_of(&all);
    for (cell, (cache, files)) in
        cells
            .iter()
            .zip([("warm", 3), ("warm", 20), ("cold", 36), ("cold", 40)])
    {
        let parameters = &cell["parameters"];
        assert_eq!(
            (&parameters["cache"], &parameters["files"]),
            (&cache.into(), &files.into())
        );
        for row in rows(cell) {
            assert_eq!(most_cached(row).is_some(), cache == "cold", "{row}");
        }
        // A program that reads files reads all of them.
        let most = rows(cell).iter().filter_map(most_cached).reduce(f64::max);
        assert!(most.is_none_or(|most| most == 100.0), "{cell}");
        assert!(["vmtouch", "fincore", "cat"].contains(&parameters["best"].as_str().unwrap()));
    }
    assert!(cells[0]["parameters"]["bytes"].as_u64() > Some(16 << 20));
}

/// The cold tables are cold: the programs have the data read from the device.
#[test]
fn each_program_runs_with_its_arguments() {
    slowdisk::require!(slowdisk::available());
    let (here, programs) = (directory(), directory());
    let log = programs.path().join("log");
    let note = format!("echo \"$0\" \"$@\" >> {}", log.display());
    let nowait = script(programs.path(), "a", &note);
    for name in ["vmtouch", "fincore"] {
        script(programs.path(), name, &note);
    }
    let args = "tools --scale 0.002 --tables tiny,small --rounds 3 --json --nowait";
    let mut command = bench(here.path(), args);
    let all = run(command.arg(&nowait).env("PATH", path_with(programs.path())))
        .done()
        .json();
    let ran = fs::read_to_string(log).unwrap();
    let ends = [
        "/a fincore -r tiny",
        "/a fincore -r empty",
        "/a warm -r small",
        "/vmtouch -q tiny",
        "/vmtouch -qt small",
    ];
    for words in ends {
        assert!(
            ran.lines().any(|line| line.ends_with(words)),
            "{words}: {ran}"
        );
    }
    let fincore = ran
        .lines()
        .find(|line| line.contains("/fincore tiny/0/0 tiny/0/1 "));
    assert!(
        fincore.is_some_and(|line| line.ends_with(" tiny/0/19")),
        "{ran}"
    );
    // A program that reads nothing leaves the files uncached.
    let cached = |name: &str| most_cached(row(&all["cells"][1], name)).unwrap();
    assert!(cached("nowait") == 0.0 && cached("cat") > 0.0, "{all}");
}

/// A turn that Ctrl-C ends leaves neither the program nor the programs that it has started.
#[test]
fn ctrl_c_ends_the_programs_of_a_turn() {
    slowdisk::require!(slowdisk::available());
    let (here, programs) = (directory(), directory());
    let pid = programs.path().join("pid");
    // The second run is on the tree.
    let begin = format!("echo $$ > {}; exec sleep 600", pid.display());
    script(
        programs.path(),
        "cat",
        &format!("[ \"$1\" = empty/0 ] || {{ {begin}; }}"),
    );
    let child = spawned(
        bench(
            here.path(),
            "tools --scale 0.002 --tables small --contenders cat",
        )
        .env("PATH", path_with(programs.path())),
    );
    let mut cat = None;
    until("cat runs", || {
        let text = fs::read_to_string(&pid).unwrap_or_default();
        cat = text.trim().parse().ok().and_then(Pid::from_raw);
        cat.is_some()
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    until("cat ends", || test_kill_process(cat.unwrap()).is_err());
    assert_nothing_is_left(here.path());
}
