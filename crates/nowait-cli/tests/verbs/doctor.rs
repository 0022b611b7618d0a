//! Tests of `nowait doctor`: its output and its exit status.

use std::process::{Command, Output};

use serde_json::Value;

fn doctor(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait"));
    command
        .arg("doctor")
        .args(args)
        .env_remove("NOWAIT_BACKEND");
    command
}

fn run(command: &mut Command) -> Output {
    command.output().expect("the program starts")
}

fn json(command: &mut Command) -> Value {
    let output = run(command);
    assert!(output.status.success(), "{output:?}");
    assert!(
        output.stderr.is_empty(),
        "nothing but the report: {output:?}"
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn text(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Reports what a test lacks. With NOWAIT_TEST_ALL=1 this is a failure.
fn skip(missing: &str) {
    assert!(std::env::var_os("NOWAIT_TEST_ALL").is_none(), "{missing}");
    eprintln!("skipped: {missing}");
}

fn is_tmpfs(path: &str) -> bool {
    rustix::fs::statfs(path).is_ok_and(|fs| fs.f_type as u64 == 0x0102_1994)
}

#[test]
fn json_has_the_documented_format() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let report = json(&mut doctor(&[path, "--json"]));
    assert_eq!(report["doctor"], 1);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["seed_break_even"], 0.3);
    for key in [
        "machine",
        "kernel",
        "filesystem",
        "false_eof",
        "costs_ns",
        "not_measured",
        "backend",
        "plan",
    ] {
        assert!(report[key].is_object(), "{key}");
    }
    let mut asked = vec![
        "preadv2",
        "pwritev2",
        "cachestat",
        "statx",
        "openat2",
        "io_uring",
    ];
    if report["kernel"]["io_uring"]["ok"] == true {
        asked.extend([
            "io_uring_sqpoll",
            "io_uring_iopoll",
            "io_uring_hybrid_iopoll",
            "io_uring_registered_ring",
            "io_uring_registered_files",
            "io_uring_registered_buffers",
            "io_uring_min_wait",
            "io_uring_iowq_limits",
        ]);
    }
    for call in asked {
        let fact = &report["kernel"][call];
        assert!(fact["ok"].is_boolean(), "{call}: {fact}");
        assert!(
            fact["ok"] == true || fact["why"].is_string(),
            "{call}: {fact}"
        );
    }
    for trial in [
        "nowait_read",
        "nowait_write",
        "write_dsync",
        "eviction",
        "mincore",
    ] {
        let fact = &report["filesystem"][trial];
        assert!(fact["ok"].is_boolean(), "{trial}: {fact}");
    }
    for key in ["null_call", "pread_4k_hit", "handoff_worker_nop"] {
        let cost = &report["costs_ns"][key];
        if let Some(why) = report["not_measured"][key].as_str() {
            // On a busy machine the handoff may be too slow to be measured.
            assert!(
                key.starts_with("handoff") && why.contains("too slow"),
                "{key}: {why}"
            );
            continue;
        }
        let [p10, median, p90] = ["p10", "median", "p90"].map(|q| cost[q].as_f64().unwrap());
        assert!(0.0 < p10 && p10 <= median && median <= p90, "{key}: {cost}");
    }
    for rate in ["break_even", "ask_first_break_even"] {
        let rate = &report[rate];
        assert!(rate.is_null() || (0.0..=1.0).contains(&rate.as_f64().unwrap()));
    }
    assert!(report["plan"]["eager"].is_string());
    assert!(report["plan"]["strict"].is_string());
}

#[test]
fn no_file_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    json(&mut doctor(&[dir.path().to_str().unwrap(), "--json"]));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_given_file_is_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "as it was").unwrap();
    let report = json(&mut doctor(&[path.to_str().unwrap(), "--json"]));
    let tried_on = report["filesystem"]["tried_on"].as_str().unwrap();
    assert!(tried_on.starts_with("a temporary file in"), "{tried_on}");
    assert_eq!(std::fs::read(&path).unwrap(), b"as it was");
}

#[test]
fn tmpfs_refuses_nowait_and_is_read_inline() {
    if !is_tmpfs("/dev/shm") {
        return skip("a tmpfs on /dev/shm");
    }
    let report = json(&mut doctor(&["/dev/shm", "--json"]));
    assert_eq!(report["filesystem"]["name"], "tmpfs");
    assert_eq!(report["filesystem"]["nowait_read"]["ok"], false);
    assert_eq!(report["filesystem"]["eviction"]["ok"], false);
    assert_eq!(report["plan"]["eager"], "Inline");
    assert_eq!(report["plan"]["strict"], "Inline");
    assert_eq!(report["break_even"], Value::Null);
    assert_eq!(report["false_eof"]["tested"], Value::Null);
    assert!(report["false_eof"]["why"].is_string());
}

#[test]
fn the_plan_agrees_with_the_checks() {
    let report = json(&mut doctor(&[env!("CARGO_TARGET_TMPDIR"), "--json"]));
    let fs = &report["filesystem"];
    if is_tmpfs(env!("CARGO_TARGET_TMPDIR")) {
        return skip("a target directory that is not in memory");
    }
    if fs["nowait_read"]["ok"] == true {
        assert_eq!(report["plan"]["eager"], "CacheFirst");
    } else {
        assert_ne!(report["plan"]["eager"], "CacheFirst");
    }
    if fs["mincore"]["ok"] == true {
        assert_eq!(report["plan"]["strict"], "AskFirst");
    }
}

#[test]
fn a_requested_backend_is_reported() {
    let report = json(doctor(&["--json"]).env("NOWAIT_BACKEND", "threads"));
    assert_eq!(report["backend"]["name"], "threads");
    assert_eq!(report["backend"]["why"], "NOWAIT_BACKEND=threads");
    assert!(report["not_measured"]["ring_nop"].is_string());
}

#[test]
fn an_unavailable_backend_is_reported_and_not_fatal() {
    let report = json(doctor(&["--json"]).env("NOWAIT_BACKEND", "steam"));
    assert_eq!(report["backend"]["name"], Value::Null);
    let why = report["backend"]["why"].as_str().unwrap();
    assert!(why.contains("NOWAIT_BACKEND"), "{why}");
    assert_eq!(report["plan"]["eager"], Value::Null);
}

#[test]
fn a_missing_path_is_named_and_fails() {
    let output = run(&mut doctor(&["/no/such/place"]));
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("/no/such/place"), "{message}");
    assert!(message.contains("name a file or directory"), "{message}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_device_is_refused() {
    let output = run(&mut doctor(&["/dev/null"]));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn wrong_usage_has_exit_code_2() {
    assert_eq!(run(&mut doctor(&["--no-such-flag"])).status.code(), Some(2));
    assert_eq!(run(&mut doctor(&[".", "two"])).status.code(), Some(2));
}

#[test]
fn text_fits_80_columns_and_has_no_colour_in_a_pipe() {
    let text = text(&mut doctor(&["/"]));
    assert!(!text.contains('\x1b'));
    for line in text.lines() {
        // A path may be longer than a line.
        let long = line.chars().count() > 80 && line.split_whitespace().count() > 3;
        assert!(!long, "{line}");
    }
    for heading in [
        "Kernel and sandbox",
        "Filesystem of /",
        "False end of file",
        "Costs in ns",
        "Break-even hit rate",
        "Decisions of nowait",
    ] {
        assert!(text.lines().any(|line| line == heading), "{heading}");
    }
}
