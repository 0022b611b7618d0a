//! `nowait-bench server`.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use slowdisk::require;

use crate::common::{Said, devices, devices_below, directory, is_missing, nowait_bench, run};

/// The contenders in this process.
const INSIDE: [&str; 7] = [
    "nowait",
    "nowait-read",
    "tokio-fs",
    "spawn-blocking",
    "blocking",
    "serve-dir",
    "serve-dir-nowait",
];

/// `server` with few files.
fn server(dir: &Path, args: &str) -> Command {
    let mut command = nowait_bench(["server", "--hot-files", "5", "--cold-files", "40"]);
    command.args(args.split_whitespace()).current_dir(dir);
    command
}

/// The same with short turns and few connections.
fn short(dir: &Path, args: &str) -> Command {
    let mut command = server(dir, args);
    command.args(["--seconds", "0.05", "--hot", "2"]);
    command
}

fn all_names(cell: &Value) -> Vec<&str> {
    let contenders = cell["contenders"].as_array().unwrap().iter();
    contenders
        .map(|contender| contender["name"].as_str().unwrap())
        .collect()
}

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
    let args = format!(
        "--cold 0,3 --rounds 3 --size 9000 --json --svg charts --contenders {}",
        INSIDE.join(",")
    );
    let said = run(&mut short(dir.path(), &args));
    assert_eq!(said.code, Some(0), "{said:?}");
    let all = said.json();
    assert_eq!(
        (&all["area"], &all["interrupted"]),
        (&"server".into(), &false.into())
    );
    assert_eq!(all["settings"]["hot_files"], 5);
    let cells = all["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    for (cell, cold) in cells.iter().zip([0, 3]) {
        assert_eq!(cell["name"], format!("hot-2-cold-{cold}"));
        assert_eq!(cell["parameters"]["cold_connections"], cold);
        assert_eq!(cell["parameters"]["block"], 9000);
        assert_eq!(all_names(cell), INSIDE);
        for contender in cell["contenders"].as_array().unwrap() {
            let ours = contender["name"].as_str().unwrap().contains("nowait");
            assert_eq!(contender["ours"], ours);
            assert_eq!(contender["rounds"].as_array().unwrap().len(), 3);
            let median = &contender["median"];
            assert!(median["tick_us"]["p99"].is_f64(), "{contender}");
            for round in contender["rounds"].as_array().unwrap() {
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
        let peers = INSIDE[2..6].iter().map(|peer| ("nowait", peer));
        for (ours, peer) in peers.chain([("serve-dir-nowait", &"serve-dir")]) {
            let ratio = &cell["ratios"][format!("{ours}/{peer}")];
            for figure in ["ops_per_s", "classes/hot/lat_us/p99"] {
                assert!(ratio[figure]["median"].is_f64(), "{peer} {ratio}");
            }
        }
    }
    let titles: Vec<&Value> = all["tables"]
        .as_array()
        .unwrap()
        .iter()
        .map(|table| &table["title"])
        .collect();
    let want = [
        "hot (2 + 0)",
        "all (2 + 0)",
        "hot (2 + 3)",
        "cold (2 + 3)",
        "all (2 + 3)",
    ];
    assert_eq!(titles, want);
    let chart = dir.path().join("charts/server-hot-2-cold-3-cold.svg");
    assert!(fs::read_to_string(chart).unwrap().contains("serve-dir"));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "the charts alone stay: {left:?}");
}

#[test]
fn a_paced_turn_shows_what_cold_requests_cost_the_others() {
    let dir = directory();
    let args = "--cold 0,3 --api 2 --paced --rounds 1 --json --contenders serve-dir,serve-dir-nowait,nowait";
    let said = run(&mut short(dir.path(), args));
    assert_eq!(said.code, Some(0), "{said:?}");
    let all = said.json();
    for (cell, is_paced) in all["cells"].as_array().unwrap().iter().zip([false, true]) {
        for contender in cell["contenders"].as_array().unwrap() {
            let median = &contender["median"];
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
    assert!(tables.iter().any(|table| table["title"] == "api (2 + 3)"));
    assert!(
        tables
            .iter()
            .any(|table| table["title"] == "beside cold (2 + 3)")
    );
}

#[test]
fn nginx_is_measured_and_ended() {
    if is_missing(&["nginx", "setpriv"]) {
        return;
    }
    let (dir, tmp) = (directory(), directory());
    let mut command = short(dir.path(), "--cold 3 --rounds 1 --contenders nginx --json");
    let said = run(command.env("TMPDIR", tmp.path()));
    assert_eq!(said.code, Some(0), "{said:?}");
    let cell = &said.json()["cells"][0];
    assert_eq!(all_names(cell), ["nginx"]);
    let median = &cell["contenders"][0]["median"];
    assert!(median["ops"].as_f64() > Some(0.0) && median["tick_us"].is_null());
    let word = tmp.path().to_str().unwrap();
    assert_eq!(processes_with(word), [""; 0]);
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
}

#[test]
fn a_contender_that_is_missing_is_left_out_with_the_reason() {
    let dir = directory();
    let args = "--cold 0 --rounds 1";
    let said = run(short(dir.path(), args).env("PATH", "/nonexistent"));
    // A system may have nginx in /usr/sbin, where it is found without PATH, but setpriv is not there.
    assert_eq!(said.code, Some(0), "{said:?}");
    let words: Vec<&str> = said.text().split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("`nginx` is left out: it needs the program"),
        "{said:?}"
    );
    let args = "--cold 0 --rounds 1 --contenders nginx";
    let said = run(short(dir.path(), args).env("PATH", "/nonexistent")).in_part();
    assert!(said.err.contains("Debian's package"), "{said:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_wrong_byte_ends_the_bench() {
    let dir = directory();
    let args = "--dir files --cold 2 --rounds 1 --contenders";
    let all = |contender: &str| run(&mut short(dir.path(), &format!("{args} {contender}")));
    assert_eq!(all("nowait").code, Some(0));
    assert_eq!(fs::read_dir(dir.path().join("files")).unwrap().count(), 45);
    let file = dir.path().join("files/hot-000003");
    let open = fs::File::options()
        .read(true)
        .write(true)
        .open(file)
        .unwrap();
    let mut byte = [0];
    open.read_exact_at(&mut byte, 8192).unwrap();
    open.write_all_at(&[!byte[0]], 8192).unwrap();
    for contender in INSIDE {
        let said = all(contender).in_part();
        let words = format!("{contender}: hot-000003: byte 8192 of the response is wrong");
        assert!(said.err.contains(&words), "{said:?}");
    }
}

#[test]
fn wrong_input_is_refused_with_the_reason() {
    let dir = directory();
    fs::create_dir(dir.path().join("files")).unwrap();
    fs::write(dir.path().join("files/cold-000000"), "short").unwrap();
    for (args, code, words) in [
        ("--dir files", 2, "has 5 bytes: name another --dir"),
        ("--dir files --slow-disk 1ms", 2, "cannot be used with"),
        ("--size 2G", 2, "at most 1G"),
        ("--contenders apache", 2, "spawn-blocking"),
        ("--hot 0", 2, "1..=1000"),
    ] {
        let said = run(&mut server(dir.path(), args));
        assert_eq!(said.code, Some(code), "{args}: {said:?}");
        assert!(said.err.contains(words), "{args}: {said:?}");
    }
}

#[test]
fn a_slow_disk_is_removed() {
    require!(slowdisk::available());
    let (dir, tmp) = (directory(), directory());
    let args = "--cold 4 --rounds 1 --slow-disk 1ms --contenders nowait,tokio-fs --json";
    let said = run(short(dir.path(), args).env("TMPDIR", tmp.path()));
    assert_eq!(said.code, Some(0), "{said:?}");
    let all = said.json();
    assert_eq!(all["settings"]["slow_disk"]["latency_us"], 1000.0);
    // A fast machine reads every cold file before the end of the turn.
    let early = |note: &Value| note.as_str().unwrap().starts_with("a turn ended early");
    let notes = all["notes"].as_array().unwrap();
    assert!(notes.iter().all(early), "cold files are cold: {notes:?}");
    for contender in all["cells"][0]["contenders"].as_array().unwrap() {
        let cold = &contender["median"]["classes"]["cold"];
        // The disk cannot answer earlier.
        assert!(cold["lat_us"]["p50"].as_f64() >= Some(1000.0), "{cold}");
    }
    assert_eq!(devices_below(tmp.path()), 0, "{:?}", devices());
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
}

/// Starts a long run with nginx, waits until nginx runs, and sends these signals.
fn interrupted(signals: &[Signal]) -> (Said, usize) {
    let (dir, tmp) = (directory(), directory());
    let word = tmp.path().to_str().unwrap().to_owned();
    let mut command = server(dir.path(), "--cold 2 --rounds 1000 --contenders nginx");
    let child = command
        .args(["--seconds", "1"])
        .env("TMPDIR", tmp.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while processes_with(&word).is_empty() {
        assert!(Instant::now() < end, "nginx does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    for signal in signals {
        std::thread::sleep(Duration::from_millis(200));
        kill_process(Pid::from_child(&child), *signal).unwrap();
    }
    let said = Said::of(&child.wait_with_output().unwrap());
    let end = Instant::now() + Duration::from_secs(30);
    while !processes_with(&word).is_empty() {
        assert!(Instant::now() < end, "nginx stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    (said, fs::read_dir(dir.path()).unwrap().count())
}

#[test]
fn ctrl_c_ends_nginx_and_leaves_nothing() {
    if is_missing(&["nginx", "setpriv"]) {
        return;
    }
    let (said, left) = interrupted(&[Signal::INT]);
    assert_eq!((said.code, left), (Some(130), 0), "{said:?}");
    // A signal that the process cannot catch.
    let (said, _) = interrupted(&[Signal::KILL]);
    assert_eq!(said.code, None);
}
