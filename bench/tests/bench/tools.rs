//! `nowait-bench tools`: its tables, the programs that it runs, and the removal of its files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::common::{
    Said, assert_nothing_is_left, contenders, directory, is_missing, nowait_bench, row, rows, run,
    unprivileged, until,
};

/// `tools` in a directory, with the smallest trees.
fn tools(here: &Path, args: &str) -> Command {
    let mut command = nowait_bench(["tools", "--scale", "0.002"]);
    command.args(args.split_whitespace()).current_dir(here);
    command
}

/// A shell script that stands for a program.
fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The most of the bytes that a contender left cached. Another test may drop the caches in between.
fn most_cached(row: &Value) -> Option<f64> {
    let rounds = row["rounds"].as_array().unwrap().iter();
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
    let all = run(&mut tools(here.path(), "--json")).done().json();
    assert_nothing_is_left(here.path());
    assert_eq!(
        (&all["area"], &all["interrupted"]),
        (&"tools".into(), &false.into())
    );
    let cells = all["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for (cell, (name, cache, files, peer)) in cells.iter().zip([
        ("fincore", "warm", 3, "fincore"),
        ("tiny", "warm", 20, "fincore"),
        ("warm", "cold", 36, "cat"),
        ("small", "cold", 40, "cat"),
    ]) {
        let parameters = &cell["parameters"];
        assert_eq!(
            (&cell["name"], &parameters["cache"]),
            (&name.into(), &cache.into())
        );
        assert_eq!(parameters["files"], files, "{cell}");
        assert_eq!(contenders(cell), ["nowait", "vmtouch", peer]);
        for row in rows(cell) {
            assert_eq!(row["ours"], row["name"] == "nowait");
            assert_eq!(row["rounds"].as_array().unwrap().len(), 3);
            assert!(row["median"]["seconds"].as_f64() > Some(0.0));
            assert_eq!(most_cached(row).is_some(), cache == "cold", "{row}");
        }
        // A program that reads files reads all of them.
        let most = rows(cell).iter().filter_map(most_cached).reduce(f64::max);
        assert!(most.is_none_or(|most| most == 100.0), "{cell}");
        let best = parameters["best"].as_str().unwrap();
        assert!(["vmtouch", peer].contains(&best));
        for figure in ["seconds", "files_per_s", "cpu_s"] {
            assert!(
                cell["ratios"]["nowait/vmtouch"][figure]["median"].is_f64(),
                "{cell}"
            );
        }
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
    let path = format!(
        "{}:{}",
        programs.path().display(),
        std::env::var("PATH").unwrap()
    );
    let mut command = tools(
        here.path(),
        "--tables tiny,small --rounds 3 --json --nowait",
    );
    let all = run(command.arg(&nowait).env("PATH", path)).done().json();
    let ran = fs::read_to_string(log).unwrap();
    let ran: Vec<&str> = ran
        .lines()
        .filter_map(|line| line.rsplit_once('/').map(|_| line))
        .collect();
    for words in [
        "/a fincore -r tiny",
        "/a fincore -r empty",
        "/a warm -r small",
        "/vmtouch -q tiny",
        "/vmtouch -qt small",
    ] {
        assert!(
            ran.iter().any(|line| line.ends_with(words)),
            "{words}: {ran:?}"
        );
    }
    let fincore = ran
        .iter()
        .find(|line| line.contains("/fincore tiny/0/0 tiny/0/1 "));
    assert!(
        fincore.is_some_and(|line| line.ends_with(" tiny/0/19")),
        "{ran:?}"
    );
    // A program that reads nothing leaves the files uncached.
    let cached = |name: &str| most_cached(row(&all["cells"][1], name)).unwrap();
    assert!(cached("nowait") == 0.0 && cached("cat") > 0.0, "{all}");
}

#[test]
fn a_program_that_is_missing_is_left_out_with_the_reason() {
    let here = directory();
    let mut command = tools(here.path(), "--tables tiny --rounds 1");
    let said = run(command.env("PATH", "/nonexistent")).done();
    let words: Vec<&str> = said.text().split_whitespace().collect();
    let words = words.join(" ");
    for part in [
        "`vmtouch` is left out: vmtouch is not installed",
        "apt-get install util-linux-extra",
        "there is one contender",
    ] {
        assert!(words.contains(part), "{part}: {said:?}");
    }
    let mut command = tools(here.path(), "--tables tiny --contenders vmtouch");
    let said = run(command.env("PATH", "/nonexistent")).in_part();
    assert!(said.err.contains("apt-get install vmtouch"), "{said:?}");
    assert_nothing_is_left(here.path());
}

#[test]
fn wrong_input_is_refused_with_the_reason() {
    let here = directory();
    for (args, code, words) in [
        ("--scale 2", 2, "from 0.001 to 1"),
        ("--tables huge", 2, "fincore, tiny, warm, small"),
        ("--contenders less", 2, "nowait, vmtouch, fincore, cat"),
        (
            "--tables tiny --contenders cat",
            2,
            "choose one of nowait, vmtouch, fincore",
        ),
        ("--tables tiny --nowait nowhere", 1, "nowhere: No such file"),
        (
            "--tables tiny --nowait /bin/false --rounds 1",
            1,
            "/false failed (exit status: 1)",
        ),
        ("--tables tiny --dir nowhere", 1, "that you may write to"),
    ] {
        let mut command = nowait_bench(["tools"]);
        if !args.contains("--scale") {
            command.args(["--scale", "0.002"]);
        }
        let said = run(command
            .args(args.split_whitespace())
            .current_dir(here.path()));
        assert_eq!(said.code, Some(code), "{args}: {said:?}");
        assert!(said.err.contains(words), "{args}: {said:?}");
    }
    assert_nothing_is_left(here.path());
}

#[test]
fn without_root_the_cached_tables_run() {
    let (mut command, _copy) = unprivileged(["tools", "--scale", "0.002"]);
    let said = run(&mut command);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("--tables fincore,tiny"), "{said:?}");
    let here = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(here.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let words = "tools --scale 0.002 --tables fincore,tiny --rounds 1 --contenders nowait --nowait /bin/true";
    let (mut command, _copy) = unprivileged(words.split(' '));
    run(command.current_dir(here.path())).done();
    assert_nothing_is_left(here.path());
}

/// A turn that Ctrl-C ends leaves neither the program nor the programs that it has started.
#[test]
fn ctrl_c_ends_the_programs_of_a_turn() {
    slowdisk::require!(slowdisk::available());
    let (here, programs) = (directory(), directory());
    let pid = programs.path().join("pid");
    // The second run is on the tree.
    let text = format!(
        "[ \"$1\" = empty/0 ] || {{ echo $$ > {}; exec sleep 600; }}",
        pid.display()
    );
    script(programs.path(), "cat", &text);
    let path = format!(
        "{}:{}",
        programs.path().display(),
        std::env::var("PATH").unwrap()
    );
    let child = tools(here.path(), "--tables small --contenders cat")
        .env("PATH", path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let number = || {
        fs::read_to_string(&pid)
            .unwrap_or_default()
            .trim()
            .parse()
            .ok()
    };
    let mut cat = None;
    until("cat runs", || {
        cat = number().and_then(Pid::from_raw);
        cat.is_some()
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    until("cat ends", || test_kill_process(cat.unwrap()).is_err());
    assert_nothing_is_left(here.path());
}
