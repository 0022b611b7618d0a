//! `nowait-bench server`.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use slowdisk::require;

use crate::common::{
    Said, assert_nothing_is_left, assert_says, assert_shape, bench, cells_of, charts, contenders,
    directory, is_missing, names, report, rounds_of, rows, run, spawned, until,
};

/// The contenders in this process.
const INSIDE: &str =
    "nowait nowait-read tokio-fs spawn-blocking blocking serve-dir serve-dir-nowait";

const FEW: &str = "server --hot-files 5 --cold-files 40";

/// Short turns, few connections.
const SHORT: &str = "server --hot-files 5 --cold-files 40 --seconds 0.05 --hot 2";

/// The processes whose command line has this word.
fn processes_with(word: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap();
    let lines = all.filter_map(|entry| fs::read(entry.unwrap().path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    lines.filter(|line| line.contains(word)).collect()
}

#[test]
fn the_results_have_the_shape_of_every_area() {
    let dir = directory();
    let args = "--cold 0,3 --rounds 3 --size 9000 --contenders";
    let all = report(
        dir.path(),
        &format!("{SHORT} {args} {}", INSIDE.replace(' ', ",")),
    );
    assert_shape(
        &all,
        "server",
        3,
        &format!("hot-2-cold-0: {INSIDE}\nhot-2-cold-3: {INSIDE}"),
    );
    let about = all["settings"]["about"].as_str().unwrap();
    assert!(about.starts_with("5 hot and 40 cold files"), "{about}");
    for (cell, cold) in cells_of(&all).iter().zip([0, 3]) {
        assert_eq!(cell["parameters"]["cold_connections"], cold);
        assert_eq!(cell["parameters"]["block"], 9000);
        for contender in rows(cell) {
            assert!(
                contender["median"]["tick_us"]["p99"].is_f64(),
                "{contender}"
            );
            for round in rounds_of(contender) {
                assert!(
                    round["classes"]["hot"]["lat_us"]["p999"].is_f64(),
                    "{round}"
                );
                let read = round["classes"]["cold"]["ops"].as_u64();
                match cold {
                    0 => assert_eq!(read, None),
                    // Each at most once.
                    _ => assert!(read.is_some_and(|n| (1..=40).contains(&n)), "{round}"),
                }
            }
        }
        let ratio = &cell["ratios"]["serve-dir-nowait/serve-dir"];
        assert!(
            ratio["classes/hot/lat_us/p99"]["median"].is_f64(),
            "{ratio}"
        );
    }
    let tables = all["tables"].as_array().unwrap().iter();
    let titles: Vec<&Value> = tables.map(|table| &table["title"]).collect();
    let want = [
        "hot (2 + 0)",
        "all (2 + 0)",
        "hot (2 + 3)",
        "cold (2 + 3)",
        "all (2 + 3)",
    ];
    assert_eq!(titles, want);
    assert!(charts(&all).contains(&"server-hot-2-cold-3-cold"));
    assert_nothing_is_left(dir.path());
}

#[test]
fn a_paced_turn_shows_what_cold_requests_cost_the_others() {
    let dir = directory();
    let args =
        "--cold 0,3 --api 2 --paced --rounds 1 --contenders serve-dir,serve-dir-nowait,nowait";
    let all = report(dir.path(), &format!("{SHORT} {args}"));
    for (cell, is_paced) in cells_of(&all).iter().zip([false, true]) {
        for median in rows(cell).iter().map(|row| &row["median"]) {
            assert!(
                median["classes"]["api"]["ops"].as_f64() > Some(0.0),
                "{median}"
            );
            for class in ["hot", "api"] {
                let times = median["p99_beside_cold"][class].as_f64();
                assert_eq!(times > Some(0.0), is_paced, "{median}");
            }
        }
    }
    let tables = all["tables"].as_array().unwrap();
    for title in ["api (2 + 3)", "beside cold (2 + 3)"] {
        assert!(
            tables.iter().any(|table| table["title"] == title),
            "{title}"
        );
    }
}

#[test]
fn nginx_is_measured_and_ended() {
    if is_missing(&["nginx", "setpriv"]) {
        return;
    }
    let dir = directory();
    let all = report(
        dir.path(),
        &format!("{SHORT} --cold 3 --rounds 1 --contenders nginx"),
    );
    let cell = &all["cells"][0];
    assert_eq!(contenders(cell), ["nginx"]);
    let median = &rows(cell)[0]["median"];
    assert!(median["ops"].as_f64() > Some(0.0) && median["tick_us"].is_null());
    assert_eq!(processes_with(dir.path().to_str().unwrap()), [""; 0]);
    assert_nothing_is_left(dir.path());
}

#[test]
fn a_contender_that_is_missing_is_left_out_with_the_reason() {
    let dir = directory();
    let args = format!("{SHORT} --cold 0 --rounds 1");
    let said = run(bench(dir.path(), &args).env("PATH", "/nonexistent")).done();
    // A system may have nginx in /usr/sbin, where it is found without PATH, but setpriv is not there.
    assert_says(&said, &["`nginx` is left out: it needs the program"]);
    let mut command = bench(dir.path(), &format!("{args} --contenders nginx"));
    let said = run(command.env("PATH", "/nonexistent")).in_part();
    assert!(said.err.contains("Debian's package"), "{said:?}");
    assert_nothing_is_left(dir.path());
}

#[test]
fn a_wrong_byte_ends_the_bench() {
    let dir = directory();
    let args = format!("{SHORT} --dir files --cold 2 --rounds 1 --contenders");
    let all = |contender: &str| run(&mut bench(dir.path(), &format!("{args} {contender}")));
    all("nowait").done();
    assert_eq!(names(&dir.path().join("files")).len(), 45);
    let file = dir.path().join("files/hot-000003");
    let open = fs::File::options()
        .read(true)
        .write(true)
        .open(file)
        .unwrap();
    let mut byte = [0];
    open.read_exact_at(&mut byte, 8192).unwrap();
    open.write_all_at(&[!byte[0]], 8192).unwrap();
    for contender in INSIDE.split(' ') {
        let said = all(contender).in_part();
        let words = format!("{contender}: hot-000003: byte 8192 of the response is wrong");
        assert!(said.err.contains(&words), "{said:?}");
    }
}

#[test]
fn a_slow_disk_is_slow_and_removed() {
    require!(slowdisk::available());
    let dir = directory();
    let args = "--cold 4 --rounds 1 --slow-disk 1ms --contenders nowait,tokio-fs";
    let all = report(dir.path(), &format!("{SHORT} {args}"));
    assert_eq!(all["settings"]["slow_disk"]["latency_us"], 1000.0);
    // A fast machine reads every cold file before the end of the turn.
    let early = |note: &Value| note.as_str().unwrap().starts_with("a turn ended early");
    let notes = all["notes"].as_array().unwrap();
    assert!(notes.iter().all(early), "cold files are cold: {notes:?}");
    for contender in rows(&all["cells"][0]) {
        let cold = &contender["median"]["classes"]["cold"];
        // The disk cannot answer earlier.
        assert!(cold["lat_us"]["p50"].as_f64() >= Some(1000.0), "{cold}");
    }
    assert_nothing_is_left(dir.path());
}

/// Starts a long run with nginx, waits until nginx runs, and sends a signal.
fn interrupted(dir: &Path, signal: Signal) -> Said {
    let word = dir.to_str().unwrap();
    let args = "--cold 2 --rounds 1000 --contenders nginx --seconds 1";
    let mut command = bench(dir, &format!("{FEW} {args}"));
    let child = spawned(&mut command);
    until("nginx starts", || !processes_with(word).is_empty());
    std::thread::sleep(std::time::Duration::from_millis(200));
    kill_process(Pid::from_child(&child), signal).unwrap();
    let said = Said::of(&child.wait_with_output().unwrap());
    until("nginx ends", || processes_with(word).is_empty());
    said
}

#[test]
fn ctrl_c_ends_nginx_and_leaves_nothing() {
    if is_missing(&["nginx", "setpriv"]) {
        return;
    }
    let dir = directory();
    assert_eq!(interrupted(dir.path(), Signal::INT).code, Some(130));
    assert_nothing_is_left(dir.path());
    // A signal that the process cannot catch.
    let dir = directory();
    assert_eq!(interrupted(dir.path(), Signal::KILL).code, None);
}
