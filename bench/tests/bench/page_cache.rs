//! `nowait-bench randread`, `cached`, `hitrate`, `syscalls` and `mix`: output, errors and exit codes. No test
//! depends on a time.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{PROGRAM, directory};

fn nowait(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(args)
        .current_dir(dir)
        .env_remove("NOWAIT_BACKEND");
    command
}

fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        panic!("{e}: {out}\n{err}")
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The contenders of all cells.
fn contenders(report: &Value) -> impl Iterator<Item = &Value> {
    let cells = report["cells"].as_array().unwrap().iter();
    cells.flat_map(|cell| cell["contenders"].as_array().unwrap())
}

fn names(report: &Value) -> Vec<&str> {
    let names = contenders(report).map(|contender| contender["name"].as_str().unwrap());
    names.collect()
}

/// Returns true if io_uring is available. Fails if it is not and NOWAIT_TEST_ALL is set.
fn has_ring() -> bool {
    let ring = nowait::capability::Kernel::get().io_uring;
    if !ring.is_yes() {
        assert!(
            std::env::var_os("NOWAIT_TEST_ALL").is_none(),
            "NOWAIT_TEST_ALL: needs io_uring: {ring}"
        );
        eprintln!("skipped: needs io_uring: {ring}");
    }
    ring.is_yes()
}

const RANDREAD: [&str; 7] = [
    "pread",
    "preadv",
    "threads",
    "uring",
    "nowait",
    "nowait-strict",
    "local",
];
const CACHED: [&str; 6] = [
    "pread",
    "preadv2",
    "nowait",
    "nowait-future",
    "local-1",
    "local",
];

#[test]
fn randread_prints_the_shape_that_it_promises() {
    let dir = directory();
    let args = "randread --size 8M --ops 300 --rounds 3 --contenders preadv,nowait,local --json";
    let args: Vec<&str> = args.split(' ').collect();
    let output = nowait(dir.path(), &args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = parsed(&output);
    assert_eq!(report["area"], "randread");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert!(report["machine"]["kernel"].is_string());
    assert!(report["machine"]["cores"].is_u64());
    for key in ["filesystem", "read_ahead_kb"] {
        assert!(report["machine"].get(key).is_some(), "{key}");
    }
    let settings = &report["settings"];
    assert_eq!(settings["size"], 8 << 20);
    assert_eq!(settings["block"][0], 4096);
    assert_eq!(
        (&settings["depth"], &settings["ops"]),
        (&32.into(), &300.into())
    );
    assert_eq!(settings["advice"], "random");
    assert!(settings["cache"].as_str().unwrap().contains("DONTNEED"));
    assert_eq!(report["interrupted"], false);

    assert_eq!(names(&report), ["preadv", "nowait", "local"]);
    for contender in contenders(&report) {
        assert_eq!(contender["rounds"].as_array().unwrap().len(), 3);
        for round in contender["rounds"].as_array().unwrap() {
            assert_eq!(round["ops"], 300);
        }
        for key in [
            "ops_per_s",
            "cpu_us_per_op",
            "cpu_percent",
            "user_s",
            "sys_s",
        ] {
            assert!(contender["median"][key].is_f64(), "{key}");
        }
        for histogram in ["lat_us", "stall_us"] {
            for key in ["p50", "p90", "p99", "p999", "max"] {
                assert!(contender["median"][histogram][key].is_f64(), "{key}");
            }
        }
        assert!(contender["spread"]["ops_per_s"]["min"].is_f64());
    }
    let ratios = report["cells"][0]["ratios"].as_object().unwrap();
    let keys: Vec<&String> = ratios.keys().collect();
    assert_eq!(
        keys,
        [
            "local/nowait",
            "local/preadv",
            "nowait/local",
            "nowait/preadv"
        ]
    );
    let ratio = &ratios["nowait/preadv"];
    assert_eq!(
        (&ratio["coverage"], &ratio["rounds"]),
        (&0.75.into(), &3.into())
    );
    for figure in ["ops_per_s", "cpu_us_per_op", "lat_us/p99"] {
        let [low, median, high] =
            ["low95", "median", "high95"].map(|key| ratio[figure][key].as_f64());
        assert!(low.is_some() && low <= median && median <= high, "{ratio}");
    }
    let left = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 0, "the file it made is gone");
}

#[test]
fn every_contender_runs_on_both_backends() {
    let dir = directory();
    let file = dir.path().join("data");
    fs::write(&file, vec![7u8; 8 << 20]).unwrap();
    let file = file.to_str().unwrap();
    for backend in ["uring", "threads"] {
        if backend == "uring" && !has_ring() {
            continue;
        }
        let all: Vec<&str> = RANDREAD
            .into_iter()
            .filter(|name| *name != "uring" || backend == "uring" || has_ring())
            .collect();
        let list = all.join(",");
        let args = [
            "randread", "--file", file, "--ops", "200", "--rounds", "1", "--json",
        ];
        let output = nowait(dir.path(), &args)
            .args(["--contenders", &list])
            .env("NOWAIT_BACKEND", backend)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = parsed(&output);
        assert_eq!(names(&report), all);
        for contender in contenders(&report) {
            if let Some(engine) = contender["rounds"][0].get("engine") {
                assert_eq!(engine["backend"], backend);
            }
        }
        // The environment overrides the backend of a contender, and the report says so.
        let other = if backend == "uring" {
            "threads"
        } else {
            "uring"
        };
        if all.contains(&other) {
            let note = format!("`{other}` ran on {backend}");
            assert!(
                report["notes"].to_string().contains(&note),
                "{}",
                report["notes"]
            );
        }

        let args = [
            "cached", "--file", file, "--ops", "200", "--rounds", "1", "--json",
        ];
        let output = nowait(dir.path(), &args)
            .env("NOWAIT_BACKEND", backend)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = parsed(&output);
        // Four block sizes, on one and two threads.
        let want: Vec<&str> = CACHED.into_iter().cycle().take(8 * CACHED.len()).collect();
        assert_eq!(names(&report), want);
        let last = report["cells"].as_array().unwrap().last().unwrap();
        assert_eq!(last["parameters"], json!({"block": 1 << 20, "threads": 2}));
        assert_eq!(last["ratios"], json!({}), "one round, no ratio");
    }
}

#[test]
fn cells_are_named_by_block_and_threads() {
    let dir = directory();
    let args = "cached --size 8M --ops 500 --block 512,4K --threads 2 \
                --contenders pread,nowait-future --json";
    let args: Vec<&str> = args.split_whitespace().collect();
    let report = parsed(&nowait(dir.path(), &args).output().unwrap());
    for (i, name) in ["512x2", "4096x2"].into_iter().enumerate() {
        let cell = &report["cells"][i];
        assert_eq!(cell["name"], name);
        let ratios = cell["ratios"].as_object().unwrap();
        assert_eq!(ratios.keys().collect::<Vec<_>>(), ["nowait-future/pread"]);
    }
}

/// A future hands a long read to a worker, unless its engine allows longer copies.
#[test]
fn a_future_copies_a_long_read_in_its_thread_if_that_is_allowed() {
    let dir = directory();
    let args = "cached --size 8M --ops 100 --rounds 1 --block 1M --threads 1 \
                --contenders nowait-future,nowait-copies --json";
    let args: Vec<&str> = args.split_whitespace().collect();
    let report = parsed(&nowait(dir.path(), &args).output().unwrap());
    let handoffs: Vec<_> = contenders(&report)
        .map(|contender| {
            contender["rounds"][0]["engine"]["handoffs"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert!(handoffs[0] >= 100 && handoffs[1] < 50, "{handoffs:?}");
}

#[test]
fn mapped_files_are_copied_and_borrowed() {
    let dir = directory();
    let args = "mapped --size 8M --ops 10 --copy 512 --borrow 8,4K --threads 1,2 --rounds 3 --json";
    let args: Vec<&str> = args.split_whitespace().collect();
    let report = parsed(&nowait(dir.path(), &args).output().unwrap());
    let cells: Vec<_> = report["cells"].as_array().unwrap().iter().collect();
    let names: Vec<_> = cells
        .iter()
        .map(|cell| cell["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "512x1-copied",
            "512x2-copied",
            "8x1-borrowed",
            "8x2-borrowed",
            "4096x1-borrowed",
            "4096x2-borrowed"
        ]
    );
    let ratios = |cell: usize| cells[cell]["ratios"].as_object().unwrap().clone();
    assert!(ratios(0).contains_key("mapping/pread") && ratios(0).contains_key("compio/pread"));
    assert_eq!(ratios(2).keys().collect::<Vec<_>>(), ["mapping/memmap2"]);
    refused(
        &["mapped", "--borrow", "12"],
        2,
        &["--borrow 12", "multiple of 8"],
    );
}

#[test]
fn without_ratios_it_says_what_they_need() {
    let dir = directory();
    for (contenders, rounds, why) in [
        ("pread", "9", "No ratios: there is one contender."),
        ("pread", "1", "No ratios: there is one contender."),
        ("pread,preadv2", "2", "No ratios: they need 3 rounds."),
        ("pread,preadv2", "3", "Ratios: median"),
    ] {
        let args = "cached --size 1M --ops 100 --block 512,4K --threads 1 --contenders";
        let args = args.split(' ').chain([contenders, "--rounds", rounds]);
        let args: Vec<&str> = args.collect();
        let output = nowait(dir.path(), &args).output().unwrap();
        let said = text(&output.stdout);
        assert!(said.contains(why), "{contenders}, {rounds}: {said}");
    }
}

#[test]
fn reads_are_spread_over_files_that_stay_if_named() {
    let dir = directory();
    let args = "randread --file here --files 3 --size 9M --ops 500 --rounds 1 \
                --contenders pread,nowait,local";
    let args: Vec<&str> = args.split_whitespace().collect();
    let output = nowait(dir.path(), &args).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("in 3 files"), "{table}");
    assert!(!table.contains('\x1b'), "colour is for terminals");
    assert!(
        table.lines().all(|line| line.chars().count() <= 105),
        "{table}"
    );
    for i in 0..3 {
        let data = fs::read(dir.path().join(format!("here-{i}"))).unwrap();
        assert_eq!(data.len(), 3 << 20);
        let zeroes = data.iter().filter(|b| **b == 0).count();
        assert!(zeroes < data.len() / 200, "random bytes are rarely zero");
    }
}

#[test]
fn an_existing_file_is_only_read() {
    let dir = directory();
    let file = dir.path().join("mine");
    fs::write(&file, vec![9u8; 100_000]).unwrap();
    let before = fs::metadata(&file).unwrap();
    let args = [
        "randread", "--file", "mine", "--size", "8M", "--ops", "20", "--rounds", "1",
    ];
    let output = nowait(dir.path(), &args)
        .args(["--contenders", "pread,local", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    // The file's own size is used, in whole blocks.
    assert_eq!(parsed(&output)["settings"]["size"], 100_000 / 4096 * 4096);
    let after = fs::metadata(&file).unwrap();
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    assert_eq!(fs::read(&file).unwrap(), vec![9u8; 100_000]);
}

/// Runs the program and expects this exit code, and each of these words on standard error.
fn refused(args: &[&str], code: i32, words: &[&str]) {
    let dir = directory();
    fs::write(dir.path().join("tiny"), [0; 100]).unwrap();
    let output = nowait(dir.path(), args).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?}: no `{word}` in: {said}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_what_does() {
    refused(
        &["randread", "--contenders", "preadv,fast"],
        2,
        &[
            "fast",
            "possible values",
            "preadv",
            "nowait-strict",
            "fio-io_uring",
        ],
    );
    refused(
        &["cached", "--contenders", "uring"],
        2,
        &["nowait-future", "local-1"],
    );
    refused(&["randread", "--size", "4Q"], 2, &["4Q", "K, M, G or T"]);
    refused(&["randread", "--size", "2K"], 2, &["--size 2K", "raise"]);
    refused(
        &["randread", "--ops", "5", "--seconds", "1"],
        2,
        &["--seconds"],
    );
    refused(
        &["randread", "--size", "1M", "--ops", "257"],
        2,
        &["256 blocks", "--size"],
    );
    refused(&["cached", "--drop-caches"], 2, &["--drop-caches"]);
    refused(&[], 2, &["randread", "cached", "syscalls"]);
}

#[test]
fn what_fails_says_what_to_do() {
    refused(
        &["randread", "--file", "tiny"],
        1,
        &["tiny", "100 bytes", "--block"],
    );
    refused(
        &["cached", "--file", "/dev/null"],
        1,
        &["not a regular file"],
    );
    refused(&["randread", "--file", "."], 1, &["not a regular file"]);
    refused(&["randread", "--size", "4000T"], 1, &["no space", "--size"]);
    refused(&["randread", "--file", "not/there"], 1, &["not"]);
}

#[test]
fn syscalls_prints_doctors_table_with_spread() {
    let dir = directory();
    let args = ["syscalls", "--rounds", "2", "--json"];
    let output = nowait(dir.path(), &args).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = parsed(&output);
    assert_eq!(report["area"], "syscalls");
    assert_eq!(
        (&report["settings"]["rounds"], &report["interrupted"]),
        (&2.into(), &false.into())
    );
    // On a busy machine a handoff may be too slow to be measured.
    for key in ["null_call", "pread_4k_hit"] {
        let call = contenders(&report).find(|call| call["name"] == key);
        let call = call.unwrap_or_else(|| panic!("no {key}: {report}"));
        let median = number(&call["median"]["ns"]);
        let spread = &call["spread"]["ns"];
        let (min, max) = (number(&spread["min"]), number(&spread["max"]));
        assert!(0.0 < min && min <= median && median <= max, "{call}");
        assert_eq!(call["rounds"].as_array().map(Vec::len), Some(2), "{key}");
    }
    let findings = &report["findings"];
    assert_eq!(findings["seed_break_even"], 0.3);
    let rate = findings["ask_first_break_even"]["median"].as_f64();
    assert!(rate.is_none_or(|rate| (0.0..=1.0).contains(&rate)));

    let output = nowait(dir.path(), &args[..3]).output().unwrap();
    let table = text(&output.stdout);
    assert!(
        table.contains("null call") && table.contains("2015"),
        "{table}"
    );
    assert!(
        table.lines().all(|line| line.chars().count() <= 110),
        "{table}"
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

    refused(&["syscalls", "--rounds", "0"], 2, &["1..=1000"]);
    refused(&["syscalls", "not/there"], 1, &["not/there", "that exists"]);
}

const MIX: [&str; 7] = [
    "pool",
    "pool+nowait",
    "ring",
    "eager-uring",
    "eager-threads",
    "strict-uring",
    "strict-threads",
];

/// A number of JSON.
#[track_caller]
fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn mix_gives_the_figures_of_each_class_for_every_contender() {
    if !has_ring() {
        return;
    }
    let dir = directory();
    let args = "mix --file here --size 24M --ops 400 --rounds 3 --pool-threads 3 --depth 8 --json \
                --svg charts/deep";
    let args: Vec<&str> = args.split_whitespace().collect();
    let output = nowait(dir.path(), &args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = parsed(&output);
    assert_eq!(
        (&report["area"], names(&report)),
        (&"mix".into(), MIX.to_vec())
    );
    let settings = &report["settings"];
    assert_eq!(settings["block"][0], 16 << 10);
    assert_eq!(settings["mix"]["weights"], serde_json::json!([73, 18, 9]));
    assert_eq!(settings["mix"]["f1_hits"], 0.995);
    for (i, mib) in [2, 16, 6].into_iter().enumerate() {
        assert_eq!(settings["files"]["sizes"][i], mib << 20);
        let file = fs::metadata(dir.path().join(format!("here-{i}"))).unwrap();
        assert_eq!(file.len(), mib << 20);
    }
    // All contenders of a round have the same draws.
    let drawn = |contender: &Value, round: usize| -> Vec<Value> {
        let classes = &contender["rounds"][round]["classes"];
        ["f1", "f2", "f3"]
            .map(|class| classes[class]["ops"].clone())
            .to_vec()
    };
    let all: Vec<&Value> = contenders(&report).collect();
    for contender in &all {
        let name = contender["name"].as_str().unwrap();
        for (i, round) in contender["rounds"].as_array().unwrap().iter().enumerate() {
            assert_eq!(drawn(contender, i), drawn(all[0], i), "{name}");
            let classes = round["classes"].as_object().unwrap();
            let ops: f64 = classes.values().map(|class| number(&class["ops"])).sum();
            assert_eq!((ops, &round["ops"]), (400.0, &400.into()), "{name}");
            for (class, figures) in classes {
                let shares: f64 = ["usec", "msec"]
                    .iter()
                    .flat_map(|unit| figures["buckets"][unit].as_object().unwrap().values())
                    .map(number)
                    .sum();
                assert!((shares - 100.0).abs() < 1e-6, "{name} {class}: {shares}");
                let fast: f64 = ["2", "4", "10", "20"]
                    .iter()
                    .map(|end| number(&figures["buckets"]["usec"][end]))
                    .sum();
                assert!((fast / 100.0 - number(&figures["under_20us"])).abs() < 1e-9);
                let rates = number(&figures["ops_per_s"]) / number(&round["ops_per_s"]);
                assert!((rates - number(&figures["ops"]) / 400.0).abs() < 1e-6);
                let lat = &figures["lat_us"];
                assert!(number(&lat["p50"]) <= number(&lat["p99"]), "{name} {class}");
                assert_eq!(figures["booked"].is_null(), class == "f3", "{name}");
                assert_eq!(figures["hits"].is_null(), name == "pool", "{name}");
            }
            assert!(
                number(&classes["f1"]["booked"]) > 0.7,
                "{name}: f1 was warmed"
            );
            assert!(number(&classes["f2"]["booked"]) < 0.2, "{name}: f2 was not");
            assert!(round["stall_us"]["p99"].is_f64());
        }
    }
    let ratio = &report["cells"][0]["ratios"]["eager-uring/pool"];
    for key in ["median", "low95", "high95"] {
        for figure in ["ops_per_s", "lat_us/p50", "lat_us/p99"] {
            let figure = format!("classes/f1/{figure}");
            assert!(number(&ratio[&figure][key]) > 0.0, "{figure} {key}");
        }
    }
    for class in ["f1", "f2", "f3"] {
        let chart = dir.path().join(format!("charts/deep/{class}.svg"));
        let chart = fs::read_to_string(chart).unwrap();
        for name in MIX {
            assert!(chart.contains(name), "{class}: {name}");
        }
    }
}

#[test]
fn mix_tables_fit_a_terminal_and_a_class_without_weight_is_not_read() {
    let dir = directory();
    let args = "mix --size 24M --ops 300 --rounds 3 --weights 3,1,0 --contenders \
                pool,pool+nowait,eager-threads,strict-threads";
    let args: Vec<&str> = args.split_whitespace().collect();
    let output = nowait(dir.path(), &args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(
        table.lines().all(|line| line.chars().count() <= 110),
        "{table}"
    );
    for word in [
        "f1",
        "f2",
        "<20us %",
        "hit p99",
        "p99 x pool",
        "f1, % in",
        "< 20 us",
    ] {
        assert!(table.contains(word), "no `{word}` in: {table}");
    }
    assert!(!table.lines().any(|line| line.starts_with("f3")), "{table}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_mix_that_runs_out_of_file_says_so() {
    let dir = directory();
    let args = "mix --size 3M --ops 4000 --rounds 1 --json --contenders pool";
    let args: Vec<&str> = args.split_whitespace().collect();
    let report = parsed(&nowait(dir.path(), &args).output().unwrap());
    assert!(
        report["notes"].to_string().contains("a larger --size"),
        "{}",
        report["notes"]
    );
    // f3 has 768 KiB, and each block of it was read once.
    let contender = contenders(&report).next().unwrap();
    assert_eq!(contender["rounds"][0]["classes"]["f3"]["ops"], 48);
}

#[test]
fn a_mix_that_makes_no_sense_is_refused_with_what_does() {
    refused(
        &["mix", "--weights", "0,0,0"],
        2,
        &["--weights", "all 0", "more than 0"],
    );
    refused(
        &["mix", "--weights", "1,2"],
        2,
        &["--weights", "three", "73,18,9"],
    );
    refused(&["mix", "--weights", "1,-2,3"], 2, &["--weights"]);
    refused(&["mix", "--f1-hits", "101"], 2, &["--f1-hits", "0 to 100"]);
    refused(&["mix", "--theta", "much"], 2, &["--theta", "0 to 10"]);
    refused(
        &["mix", "--contenders", "uring"],
        2,
        &["pool+nowait", "eager-threads"],
    );
    refused(&["mix", "--size", "96K"], 2, &["--size 96K", "raise"]);
    refused(
        &["mix", "--size", "24M", "--block", "8M"],
        2,
        &["one block of 8M", "raise --size"],
    );
    refused(&["mix", "--file", "not/there"], 1, &["not"]);
    refused(&["mix", "--svg", "tiny/charts"], 1, &["--svg", "directory"]);
    let dir = directory();
    for i in 0..3 {
        fs::write(dir.path().join(format!("small-{i}")), [1; 20_000]).unwrap();
    }
    let args = ["mix", "--file", "small", "--block", "32K"];
    let output = nowait(dir.path(), &args).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("smaller --block"), "{said}");
}

#[test]
fn fio_takes_part_if_asked_and_its_absence_names_the_package() {
    let dir = directory();
    let args = [
        "randread", "--size", "8M", "--ops", "200", "--rounds", "1", "--json",
    ];
    let mut command = nowait(dir.path(), &args);
    command.args(["--contenders", "fio-psync,pread"]);
    let output = command.output().unwrap();
    if Command::new("fio").arg("--version").output().is_ok() {
        let report = parsed(&output);
        assert_eq!(names(&report), ["fio-psync", "pread"]);
        let round = &contenders(&report).next().unwrap()["rounds"][0];
        assert_eq!(round["ops"], 200);
        assert!(round["lat_us"]["p99"].as_f64() > Some(0.0));
    } else {
        assert!(
            std::env::var_os("NOWAIT_TEST_ALL").is_none(),
            "NOWAIT_TEST_ALL: needs fio"
        );
    }
    let output = command.env("PATH", dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("package `fio`"));
}

#[test]
fn an_interrupt_in_the_middle_prints_what_was_measured() {
    let dir = directory();
    let file = dir.path().join("data");
    fs::write(&file, vec![7u8; 8 << 20]).unwrap();
    let args = [
        "cached",
        "--file",
        "data",
        "--block",
        "4K",
        "--threads",
        "1",
        "--json",
    ];
    let mut command = nowait(dir.path(), &args);
    command
        .args(["--seconds", "0.5", "--rounds", "1000"])
        .args(["--contenders", "pread,nowait-future"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    std::thread::sleep(Duration::from_secs(2));
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let report = parsed(&output);
    assert_eq!(report["interrupted"], true);
    assert_eq!(names(&report)[0], "pread");
    let rounds = &report["cells"][0]["contenders"][0]["rounds"];
    let rounds = rounds.as_array().unwrap();
    assert!(!rounds.is_empty() && rounds.len() < 1000);
}

#[test]
fn an_interrupt_while_a_file_is_made_leaves_nothing() {
    let dir = directory();
    let args = ["randread", "--file", "big", "--size", "2G"];
    let mut command = nowait(dir.path(), &args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let end = Instant::now() + Duration::from_secs(30);
    while fs::read_dir(dir.path()).unwrap().count() == 0 {
        assert!(Instant::now() < end, "no file is made");
        std::thread::sleep(Duration::from_millis(5));
    }
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn hitrate_reads_at_the_rates_asked_for_and_says_where_curves_cross() {
    let dir = directory();
    let args = "hitrate --size 16M --ops 1000 --rounds 3 --rates 100,0,30,30 --block 4K \
                --order random --svg charts/of/it --json";
    let args: Vec<&str> = args.split_whitespace().collect();
    let backends = ["uring", "threads"];
    for backend in backends
        .into_iter()
        .filter(|b| *b == "threads" || has_ring())
    {
        let output = nowait(dir.path(), &args)
            .args(["--backend", backend, "--force"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = parsed(&output);
        let all = ["always", "never", "ask", "strict", "adaptive"];
        assert_eq!(names(&report), all.repeat(3), "rates once each, rising");
        let cells = report["cells"].as_array().unwrap().iter();
        for (cell, contender) in cells.flat_map(|cell| {
            let contenders = cell["contenders"].as_array().unwrap().iter();
            contenders.map(move |contender| (cell, contender))
        }) {
            let (rate, name) = (&cell["parameters"]["rate"], &contender["name"]);
            for round in contender["rounds"].as_array().unwrap() {
                assert_eq!(round["ops"], 1000);
                assert_eq!(round["engine"]["backend"], backend);
                // A fast device can read a block during the try for it. A cached block must not be
                // missed.
                let hits = round["hits_percent"].as_f64();
                if name == "ask" || name == "always" {
                    // The origin of reads by workers is unknown.
                    let hits = hits.unwrap_or_default();
                    assert!(hits + 0.5 >= rate.as_f64().unwrap(), "{hits} at {rate}");
                }
                let tried = &round["engine"]["hits"];
                if name == "never" {
                    assert_eq!(tried, 0, "at {rate}");
                } else if name == "always" && rate == 100 {
                    assert_eq!(tried, 1000);
                }
            }
        }
        let cell = &report["cells"][1];
        assert_eq!(cell["name"], "4096-random-30");
        assert!(cell["ratios"]["adaptive/always"]["ops_per_s"]["median"].is_f64());
        assert_eq!(report["findings"]["seed_break_even"], 0.3);
        let curve = &report["findings"]["curves"][0];
        assert_eq!(
            (&curve["block"], &curve["order"]),
            (&4096.into(), &"random".into())
        );
        assert!(curve["always_never"].is_array() && curve["ask_always"].is_array());
        let rates: Vec<_> = curve["adaptive"].as_array().unwrap().iter().collect();
        assert_eq!(rates.len(), 3);
        for at in rates {
            assert!(at["better"] == "always" || at["better"] == "never");
            assert!(at["low95"].as_f64() <= at["time"].as_f64());
        }
        assert_eq!(curve["turn_over"]["of"], 1365);
        let chart = dir.path().join("charts/of/it/hitrate-4K-random.svg");
        let chart = fs::read_to_string(chart).unwrap();
        assert!(chart.starts_with("<svg") && chart.contains("adaptive"));
    }
}

#[test]
fn hitrate_tables_fit_and_linear_reads_go_upwards() {
    let dir = directory();
    let args = "hitrate --size 16M --ops 500 --rounds 3 --rates 0,100 --depth 1 --order linear";
    let args: Vec<&str> = args.split_whitespace().collect();
    let output = nowait(dir.path(), &args)
        .args(["--block", "4K", "--contenders", "always,never,adaptive"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for words in [
        "4K linear, 100 % hits",
        "hit %",
        "in 2015",
        "at most",
        "beats asking from",
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let fit = |line: &str| line.chars().count() <= 110;
    assert!(table.lines().all(fit), "{table}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn hitrate_refuses_what_makes_no_sense() {
    refused(&["hitrate", "--rates", "0,101"], 2, &["101", "0..=100"]);
    refused(&["hitrate", "--order", "up"], 2, &["random", "linear"]);
    refused(&["hitrate", "--backend", "fast"], 2, &["uring or threads"]);
    refused(&["hitrate", "--contenders", "pread"], 2, &["always", "ask"]);
    refused(&["hitrate", "--drop-caches"], 2, &["--drop-caches"]);
    refused(
        &["hitrate", "--ops", "5", "--seconds", "1"],
        2,
        &["--seconds"],
    );
    refused(
        &["hitrate", "--size", "1M", "--ops", "257"],
        2,
        &["blocks", "--size"],
    );
    refused(
        &["hitrate", "--svg", "tiny"],
        1,
        &["--svg tiny", "name a directory"],
    );
}
