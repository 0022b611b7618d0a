//! `nowait-bench race`: its counts, the removal of what it makes, and its behaviour without privileges. No
//! test depends on how often pages are reclaimed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{
    PROGRAM, Said, assert_nothing_is_left, assert_says, bench, charts, directory, has, report,
    rounds_of, run, spawned, unprivileged, until,
};

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

/// Returns true if memory cgroups are available.
fn has_cgroups() -> bool {
    let dir = directory();
    let tiny = "race --rounds 1 --seconds 0.01 --delays 0 --pressures none,light";
    let made = report(dir.path(), tiny)["findings"]["pressures"][1]["limit"].is_u64();
    has("a memory cgroup that may have children", made)
}

/// A bench that runs for a long time, and its cgroup.
fn under_way(dir: &Path) -> (Child, PathBuf) {
    let long = "race --rounds 1000 --seconds 0.02 --delays 0 --pressures heavy --json";
    let mut command = bench(dir, long);
    let mut child = spawned(&mut command);
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

/// Interrupts a bench after longer and longer times, until a turn was over before: without one there is
/// no report.
fn ended_after_a_turn(interrupt: impl Fn(Duration) -> Said) -> Value {
    let waits = (0..7).map(|i| Duration::from_millis(500 << i));
    let mut ends = waits.map(interrupt);
    let said = ends.find(|said| !said.out.is_empty());
    said.expect("no turn is over within 32 s").json()
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
    let args = "race --rounds 2 --seconds 0.02 --delays 0,1ms --pressures none,heavy,evict";
    if !has_cgroups() {
        return;
    }
    let report = report(dir.path(), args);
    assert_eq!(report["area"], "race");
    assert_eq!(report["settings"]["delays_us"][1], 1000.0);

    // Linear and seeky, 1 byte and 4 KiB, with and without a touch.
    let cells = rows(&report, "cells");
    assert_eq!(cells.len(), 3 * 2 * 8);
    for row in cells.iter().chain(rows(&report, "by_delay")) {
        let [asked, yes, races] = ["asked", "yes", "races"].map(|key| number(row, key));
        assert!(asked >= yes && yes >= races, "{row}");
        assert!(races >= number(row, "at_touch"), "{row}");
        assert!(row["early"].as_u64().is_none_or(|early| early <= races));
        let rounds = rounds_of(row);
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
    // On a busy machine a turn may be too short for a read.
    for row in ways.iter().filter(|row| number(row, "hits") > 0) {
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
    assert_eq!(charts(&report), ["race", "race-gone"]);
    assert_nothing_is_left(dir.path());
}

#[test]
fn pages_that_go_in_between_are_counted_as_races() {
    let dir = directory();
    let args = "race --size 16M --rounds 1 --seconds 0.3 --delays 0,20ms --pressures evict,none";
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
    let args = "race --size 64M --rounds 1 --seconds 0.02 --delays 0 --pressures light,heavy";
    let child = spawned(bench(dir.path(), args).arg("--json"));
    let pid = child.id();
    let report = Said::of(&child.wait_with_output().unwrap()).json();
    let limits = rows(&report, "pressures").iter();
    let limits: Vec<u64> = limits.map(|pressure| number(pressure, "limit")).collect();
    let (file, own) = (64 << 20, 8 << 20);
    let is_near = |limit: u64, want: u64| (want..want + own).contains(&limit);
    assert!(
        is_near(limits[0], file * 7 / 8) && is_near(limits[1], file / 2),
        "{limits:?}"
    );
    assert!(cgroups(pid).is_empty());
    // Memory has no room for the whole file, so some answers must be no.
    let mut by_delay = rows(&report, "by_delay").iter();
    let heavy = by_delay.find(|row| row["pressure"] == "heavy").unwrap();
    assert!(number(heavy, "yes") < number(heavy, "asked"), "{heavy}");
    let said = run(&mut bench(dir.path(), args)).done();
    assert_says(
        &said,
        &[
            "heavy: a memory cgroup of",
            "% of yes",
            "strict",
            "The race happened",
        ],
    );
}

#[test]
fn the_cgroup_goes_with_an_interrupted_bench() {
    if !has_cgroups() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        let report = ended_after_a_turn(|wait| {
            let dir = directory();
            let (child, cgroup) = under_way(dir.path());
            let inside = members(&cgroup);
            std::thread::sleep(wait);
            let id = child.id();
            kill(id as i32, signal);
            let said = Said::of(&child.wait_with_output().unwrap());
            assert_eq!(said.code, Some(130), "{said:?}");
            assert!(cgroups(id).is_empty());
            assert!(inside.into_iter().all(gone));
            assert_nothing_is_left(dir.path());
            said
        });
        assert_eq!(report["interrupted"], true);
        assert!(!rows(&report, "by_delay").is_empty());
    }
}

#[test]
fn what_is_left_of_a_round_whose_process_is_killed_is_missing_and_the_rest_is_done() {
    if !has_cgroups() {
        return;
    }
    let report = ended_after_a_turn(|wait| {
        let dir = directory();
        let (child, cgroup) = under_way(dir.path());
        let killed = members(&cgroup)[0];
        kill(killed, Signal::KILL);
        until("the next round", || {
            members(&cgroup).iter().any(|pid| *pid != killed)
        });
        std::thread::sleep(wait);
        kill(child.id() as i32, Signal::INT);
        let said = Said::of(&child.wait_with_output().unwrap());
        assert!(!cgroup.exists());
        said
    });
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("killed") && notes.contains("--size"),
        "{notes}"
    );
    assert!(!rows(&report, "by_delay").is_empty());
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
    until("its processes end with the bench", || {
        inside.iter().copied().all(gone)
    });
    // Any bench removes it, also one that another test runs.
    assert!(has_cgroups());
    assert!(!cgroup.exists());
}

#[test]
fn without_rights_a_shortage_of_memory_is_left_out_and_the_report_says_so() {
    if !has(
        "root, to be another user",
        rustix::process::geteuid().is_root(),
    ) {
        return;
    }
    let words = "race --rounds 1 --seconds 0.02 --delays 0 --pressures light,evict --json";
    let (mut command, _copy) = unprivileged(words.split(' '));
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    let report = run(command.current_dir(dir.path())).done().json();
    let notes = report["notes"].to_string();
    let why = "`light` is left out, because no memory cgroup can be made: ";
    assert!(notes.contains(why), "{notes}");
    let pressures = report["findings"]["pressures"].as_array().unwrap();
    assert_eq!(
        (pressures.len(), &pressures[0]["pressure"]),
        (1, &"evict".into())
    );
    assert!(number(&rows(&report, "by_delay")[0], "yes") > 0);
}

/// Files in memory have no NOWAIT reads.
#[test]
fn a_file_in_memory_is_refused() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let said = run(&mut bench(
        memory.path(),
        "race --size 1M --pressures none --file data",
    ))
    .in_part();
    assert!(
        said.err.contains("--file") && said.err.contains("ext4, xfs, btrfs"),
        "{said:?}"
    );
}

#[test]
fn the_verb_of_the_process_inside_is_for_the_bench_alone() {
    let mut inside = Command::new(PROGRAM);
    let said = run(inside.arg("race-inside").stdin(Stdio::null())).in_part();
    assert!(said.err.contains("nowait-bench race"));
    let help = run(Command::new(PROGRAM).arg("--help"));
    assert!(!help.out.contains("race-inside"));
}
