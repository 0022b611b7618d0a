//! `nowait-bench race`: its counts, the removal of what it makes, and its behaviour without privileges. No
//! test depends on how often pages are reclaimed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{PROGRAM, directory};

fn race(dir: &Path, args: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(["race"])
        .args(args.split_whitespace())
        .current_dir(dir)
        .env_remove("NOWAIT_BACKEND")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        panic!("{e}: {out}\n{err}")
    })
}

fn report(dir: &Path, args: &str) -> Value {
    let output = race(dir, args).arg("--json").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    json(&output)
}

fn rows<'a>(report: &'a Value, key: &str) -> &'a Vec<Value> {
    report["findings"][key].as_array().unwrap()
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key}: {row}"))
}

fn sum<'a>(rows: impl IntoIterator<Item = &'a Value>, key: &str) -> u64 {
    rows.into_iter().map(|row| number(row, key)).sum()
}

/// The directories of cgroups that a bench has made.
fn cgroups(bench: u32) -> Vec<PathBuf> {
    let name = format!("nowait-race-{bench}");
    let mut found = Vec::new();
    let mut rest = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = rest.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let ours = entry.file_name().to_str() == Some(&name);
                let list = if ours { &mut found } else { &mut rest };
                list.push(entry.path());
            }
        }
    }
    found
}

/// Returns true if memory cgroups are available. Fails if they are not and NOWAIT_TEST_ALL is set.
fn has_cgroups() -> bool {
    let dir = directory();
    let tiny = "--rounds 1 --seconds 0.01 --delays 0 --pressures light --memory 1M";
    let made = report(dir.path(), tiny)["findings"]["pressures"][0]["limit"].is_u64();
    if !made {
        assert!(
            std::env::var_os("NOWAIT_TEST_ALL").is_none(),
            "NOWAIT_TEST_ALL: needs a memory cgroup that may have children"
        );
        eprintln!("skipped: needs a memory cgroup that may have children");
    }
    made
}

/// A bench that runs for a long time, and its cgroup.
fn under_way(dir: &Path) -> (Child, PathBuf) {
    let long = "--rounds 1000 --seconds 0.02 --delays 0 --pressures heavy --json";
    let mut child = race(dir, long).spawn().unwrap();
    for _ in 0..3000 {
        std::thread::sleep(Duration::from_millis(20));
        if let Some(path) = cgroups(child.id()).pop()
            && !members(&path).is_empty()
        {
            return (child, path);
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("no cgroup");
}

fn members(cgroup: &Path) -> Vec<i32> {
    let text = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn gone(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process that inherited it may take some time to reap it.
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn what_is_counted_adds_up() {
    let dir = directory();
    let args = "--rounds 2 --seconds 0.02 --delays 0,1ms --pressures none,heavy,evict \
                --memory 1M --svg pictures";
    let report = report(dir.path(), args);
    assert_eq!(report["area"], "race");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["interrupted"], false);
    assert!(report["machine"]["kernel"].is_string());
    assert_eq!(report["settings"]["delays_us"][1], 1000.0);

    // Linear and seeky, 1 byte and 4 KiB, with and without a touch.
    let cells = rows(&report, "cells");
    assert_eq!(cells.len(), 3 * 2 * 8);
    for row in cells.iter().chain(rows(&report, "by_delay")) {
        let [asked, yes, races] = ["asked", "yes", "races"].map(|key| number(row, key));
        assert!(asked >= yes && yes >= races, "{row}");
        assert!(races >= number(row, "at_touch"), "{row}");
        assert!(row["early"].as_u64().is_none_or(|early| early <= races));
        let rounds = row["rounds"].as_array().unwrap();
        for key in ["asked", "yes", "races"] {
            assert_eq!(sum(rounds, key), number(row, key), "{key}: {row}");
        }
        if yes > 0 {
            let [share, low, high] = ["share", "low95", "high95"].map(|key| row[key].as_f64());
            let of = races as f64 / yes as f64;
            assert!(
                share.is_some_and(|share| (share - of).abs() < 1e-12),
                "{row}"
            );
            assert!(low <= share && share <= high && high <= Some(1.0), "{row}");
            assert!(row["cost_ns"]["ask_yes"].as_f64() > Some(0.0), "{row}");
        }
        if row["touch"] == false {
            assert_eq!(row["at_touch"], 0);
        }
        if let Some(waited) = row["waited_us"].as_f64() {
            assert!(waited >= row["delay_us"].as_f64().unwrap() * 0.98, "{row}");
        }
    }
    for row in rows(&report, "by_delay") {
        let same = |cell: &&Value| {
            cell["pressure"] == row["pressure"] && cell["delay_us"] == row["delay_us"]
        };
        for key in ["asked", "yes", "races", "at_touch"] {
            assert_eq!(
                sum(cells.iter().filter(same), key),
                number(row, key),
                "{key}"
            );
        }
    }
    let ways = rows(&report, "ways");
    assert_eq!(ways.len(), 3 * 4 * 3);
    for row in ways.iter().filter(|row| row["pressure"] == "none") {
        assert!(row["hit_ns"].as_f64() > Some(0.0), "{row}");
    }
    let strict = rows(&report, "strict");
    assert_eq!(strict.len(), 3);
    for row in strict {
        let [reads, hits, misses, races] =
            ["reads", "hits", "misses", "races"].map(|key| number(row, key));
        assert!(races <= misses && hits <= reads, "{row}");
        assert!(reads > 0 || row["pressure"] == "heavy", "{row}");
    }
    let answer = report["findings"]["answer"].as_str().unwrap();
    let heavy = cells.iter().filter(|cell| cell["pressure"] == "heavy");
    let yeses = format!("in {} yeses when memory was short", sum(heavy, "yes"));
    assert!(answer.contains(&yeses), "{answer}");
    for name in ["race.svg", "race-gone.svg"] {
        let svg = fs::read_to_string(dir.path().join("pictures").join(name)).unwrap();
        assert!(svg.contains("heavy") && svg.contains("evict"), "{name}");
    }
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "only pictures"
    );
}

#[test]
fn pages_that_go_in_between_are_counted_as_races() {
    let dir = directory();
    let args = "--size 16M --rounds 1 --seconds 0.3 --delays 0,20ms --pressures evict,none";
    let report = report(dir.path(), args);
    let row = |pressure: &str, delay: f64| {
        let mut rows = rows(&report, "by_delay").iter();
        rows.find(|row| row["pressure"] == pressure && row["delay_us"] == delay)
            .unwrap()
    };
    // A part of the file is evicted every few milliseconds, so some pages are gone after 20.
    let late = row("evict", 20_000.0);
    assert!(number(late, "races") > number(late, "early"), "{late}");
    assert!(late["gone"]["share"].as_f64() > row("none", 20_000.0)["gone"]["share"].as_f64());
    assert!(late["gone"]["share"].as_f64() > row("evict", 0.0)["gone"]["share"].as_f64());
    let strict = rows(&report, "strict")[0].clone();
    assert_eq!(strict["pressure"], "evict");
    assert!(number(&strict, "misses") > 0, "{strict}");
}

#[test]
fn memory_is_short_by_what_the_pressure_says_and_the_cgroup_goes() {
    if !has_cgroups() {
        return;
    }
    let dir = directory();
    let args = "--size 64M --rounds 1 --seconds 0.02 --delays 0 --pressures light,heavy --json";
    let child = race(dir.path(), args).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let report = json(&output);
    let limits: Vec<u64> = rows(&report, "pressures")
        .iter()
        .map(|pressure| number(pressure, "limit"))
        .collect();
    let (file, own) = (64 << 20, 8 << 20);
    assert!(
        (file * 7 / 8..file * 7 / 8 + own).contains(&limits[0]),
        "{limits:?}"
    );
    assert!(
        (file / 2..file / 2 + own).contains(&limits[1]),
        "{limits:?}"
    );
    assert!(cgroups(pid).is_empty());
    // Memory has no room for the whole file, so some answers must be no.
    let heavy = rows(&report, "by_delay")
        .iter()
        .find(|row| row["pressure"] == "heavy");
    let heavy = heavy.unwrap();
    assert!(number(heavy, "yes") < number(heavy, "asked"), "{heavy}");
    let table = race(dir.path(), &args.replace("--json", ""))
        .output()
        .unwrap();
    let table = text(&table.stdout);
    for words in [
        "heavy: a memory cgroup of",
        "% of yes",
        "strict",
        "The race happened",
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }
    assert!(
        table.lines().all(|line| line.chars().count() <= 105),
        "{table}"
    );
}

#[test]
fn the_cgroup_goes_with_an_interrupted_bench() {
    if !has_cgroups() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        let dir = directory();
        let (child, cgroup) = under_way(dir.path());
        let inside = members(&cgroup);
        // Some turns must be over, or there is nothing to print.
        std::thread::sleep(Duration::from_secs(2));
        kill(child.id() as i32, signal);
        let bench = child.id();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        assert!(cgroups(bench).is_empty());
        assert!(inside.into_iter().all(gone));
        let report = json(&output);
        assert_eq!(report["interrupted"], true);
        assert!(!rows(&report, "by_delay").is_empty());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn what_is_left_of_a_round_whose_process_is_killed_is_missing_and_the_rest_is_done() {
    if !has_cgroups() {
        return;
    }
    let dir = directory();
    let (child, cgroup) = under_way(dir.path());
    let killed = members(&cgroup)[0];
    kill(killed, Signal::KILL);
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(60), "no next round");
        std::thread::sleep(Duration::from_millis(20));
        let now = members(&cgroup);
        if now.iter().any(|pid| *pid != killed) {
            break;
        }
    }
    std::thread::sleep(Duration::from_secs(2));
    kill(child.id() as i32, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let report = json(&output);
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("killed") && notes.contains("--size"),
        "{notes}"
    );
    assert!(!rows(&report, "by_delay").is_empty());
    assert!(!cgroup.exists());
}

#[test]
fn what_a_killed_bench_leaves_the_next_one_removes() {
    if !has_cgroups() {
        return;
    }
    let dir = directory();
    let (mut child, cgroup) = under_way(dir.path());
    let inside = members(&cgroup);
    kill(child.id() as i32, Signal::KILL);
    child.wait().unwrap();
    let begun = Instant::now();
    while !inside.iter().copied().all(gone) {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "it outlived the bench"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    // Any bench removes it, also one that another test runs.
    assert!(has_cgroups());
    assert!(!cgroup.exists());
}

#[test]
fn without_rights_a_thread_makes_the_pressure_and_the_report_says_so() {
    if !rustix::process::geteuid().is_root() {
        assert!(
            std::env::var_os("NOWAIT_TEST_ALL").is_none(),
            "NOWAIT_TEST_ALL: needs root, to be somebody else"
        );
        eprintln!("skipped: needs root, to be somebody else");
        return;
    }
    const NOBODY: u32 = 65534;
    // Other users may have no access to the target directory.
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let program = dir.path().join("nowait-bench");
    slowdisk::copy_program(PROGRAM, &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(program)
        .args("race --rounds 1 --seconds 0.02 --delays 0".split(' '))
        .args("--pressures light,evict --memory 8M --json".split(' '))
        .current_dir(dir.path())
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = json(&output);
    let notes = report["notes"].to_string();
    assert!(notes.contains("no memory cgroup can be had"), "{notes}");
    assert!(
        notes.contains("light: the pressure thread holds"),
        "{notes}"
    );
    assert!(report["findings"]["pressures"][0]["limit"].is_null());
    assert!(number(&rows(&report, "by_delay")[0], "yes") > 0);
}

/// Runs the program and expects this exit code, and each of these words on standard error.
fn refused(args: &str, code: i32, words: &[&str]) {
    let dir = directory();
    fs::write(dir.path().join("small"), vec![7; 1 << 20]).unwrap();
    let output = race(dir.path(), args).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args}: {said}");
    for word in words {
        assert!(said.contains(word), "{args}: no `{word}` in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn what_makes_no_sense_is_refused_with_what_does() {
    refused("--delays 5", 2, &["`5`", "us, ms or s"]);
    refused("--delays 1h", 2, &["1h"]);
    refused("--delays 0,100ms", 2, &["--seconds", "--delays"]);
    refused("--pressures none,much", 2, &["much", "heavy", "evict"]);
    refused("--file small", 2, &["1M of file", "--size", "none,evict"]);
    refused("--size 4M", 2, &["least", "--size"]);
    refused("--rounds 0", 2, &["--rounds"]);
}

#[test]
fn what_fails_says_what_to_do() {
    refused("--file /dev/null", 1, &["not a regular file"]);
    refused(
        "--file small --pressures none --svg small",
        1,
        &["--svg", "directory"],
    );
    // Files in memory have no NOWAIT reads.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = memory.path().join("data");
    let args = format!("--size 1M --pressures none --file {}", file.display());
    refused(&args, 1, &["--file", "ext4, xfs, btrfs"]);
}

#[test]
fn the_verb_of_the_process_inside_is_nobody_elses() {
    let output = Command::new(PROGRAM)
        .args(["race-inside", "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(text(&output.stdout).contains("nowait-bench race"));
    let help = Command::new(PROGRAM).args(["--help"]).output().unwrap();
    assert!(!text(&help.stdout).contains("race-inside"));
}
