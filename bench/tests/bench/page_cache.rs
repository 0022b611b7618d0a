//! `nowait-bench randread`, `cached`, `mapped`, `hitrate`, `syscalls` and `mix`. No test depends on a time.

use std::fs;

use serde_json::{Value, json};

use crate::common::{
    assert_nothing_is_left, assert_says, assert_shape, bench, cells_of, directory, has,
    names as files, report, rounds_of, rows, run,
};

/// The contenders of all cells.
fn contenders(report: &Value) -> impl Iterator<Item = &Value> {
    cells_of(report).iter().flat_map(rows)
}

fn names(report: &Value) -> Vec<&str> {
    let names = contenders(report).map(|contender| contender["name"].as_str().unwrap());
    names.collect()
}

/// Returns true if io_uring is available.
fn has_ring() -> bool {
    let ring = nowait::support::Kernel::get().io_uring;
    has(&format!("io_uring: {ring}"), ring.is_yes())
}

/// A number of JSON.
#[track_caller]
fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

const RANDREAD: [&str; 5] = ["preadv", "threads", "uring", "nowait", "local"];
const CACHED: &str = "pread preadv2 nowait nowait-future local-1 local";
const MIX: &str = "pool pool+nowait ring eager-uring eager-threads strict-uring strict-threads";

#[test]
fn randread_prints_the_shape_that_it_promises() {
    let dir = directory();
    let args = "randread --size 8M --ops 300 --rounds 3 --contenders preadv,nowait,local";
    let report = report(dir.path(), args);
    assert_shape(&report, "randread", 3, ": preadv nowait local");
    for key in ["filesystem", "read_ahead_kb"] {
        assert!(report["machine"].get(key).is_some(), "{key}");
    }
    let settings = &report["settings"];
    for (key, value) in [
        ("size", json!(8 << 20)),
        ("depth", json!(32)),
        ("ops", json!(300)),
        ("block", json!([4096])),
    ] {
        assert_eq!(settings[key], value, "{key}");
    }
    assert!(settings["cache"].as_str().unwrap().contains("DONTNEED"));
    for contender in contenders(&report) {
        assert!(rounds_of(contender).iter().all(|round| round["ops"] == 300));
        for key in [
            "ops_per_s",
            "cpu_us_per_op",
            "cpu_percent",
            "user_s",
            "sys_s",
        ] {
            number(&contender["median"][key]);
        }
        for key in ["p50", "p90", "p99", "p999", "max"] {
            number(&contender["median"]["lat_us"][key]);
            number(&contender["median"]["stall_us"][key]);
        }
        number(&contender["spread"]["ops_per_s"]["min"]);
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
    assert_eq!(ratio["coverage"], 0.75);
    assert!(
        ["ops_per_s", "cpu_us_per_op", "lat_us/p99"]
            .iter()
            .all(|figure| ratio[*figure].is_object())
    );
    assert_nothing_is_left(dir.path());
}

#[test]
fn every_contender_runs_on_both_backends() {
    let dir = directory();
    fs::write(dir.path().join("data"), vec![7u8; 8 << 20]).unwrap();
    for (backend, other) in [("uring", "threads"), ("threads", "uring")] {
        if backend == "uring" && !has_ring() {
            continue;
        }
        let is_there = |name: &&str| *name != "uring" || backend == "uring" || has_ring();
        let all: Vec<&str> = RANDREAD.into_iter().filter(is_there).collect();
        let on = |args: &str| {
            let args = format!("{args} --file data --ops 200 --rounds 1 --json");
            run(bench(dir.path(), &args).env("NOWAIT_BACKEND", backend))
                .done()
                .json()
        };
        let report = on(&format!("randread --contenders {}", all.join(",")));
        assert_shape(&report, "randread", 1, &format!(": {}", all.join(" ")));
        for engine in
            contenders(&report).filter_map(|contender| contender["rounds"][0].get("engine"))
        {
            assert_eq!(engine["backend"], backend);
        }
        // The environment overrides the backend of a contender, and the report says so.
        let notes = report["notes"].to_string();
        let note = format!("`{other}` ran on {backend}");
        assert!(!all.contains(&other) || notes.contains(&note), "{notes}");

        let report = on("cached --block 512,1M");
        let cell = |name| format!("{name}: {CACHED}\n");
        let cells = ["512x1", "512x2", "1048576x1", "1048576x2"]
            .map(cell)
            .concat();
        assert_shape(&report, "cached", 1, &cells);
        let last = &report["cells"][3];
        assert_eq!(last["parameters"], json!({"block": 1 << 20, "threads": 2}));
        assert_eq!(last["ratios"], json!({}), "one round, no ratio");
    }
}

#[test]
fn mapped_files_are_copied_and_borrowed() {
    let dir = directory();
    let args = "mapped --size 2M --ops 2 --copy 512 --borrow 8,4K --threads 1,2 --rounds 3";
    let report = report(dir.path(), args);
    let copies = "pread preadv2 memmap2 compio nowait mapping";
    let cells = ["8x1", "8x2", "4096x1", "4096x2"]
        .map(|name| format!("{name}-borrowed: memmap2 mapping\n"));
    let cells = format!(
        "512x1-copied: {copies}\n512x2-copied: {copies}\n{}",
        cells.concat()
    );
    assert_shape(&report, "mapped", 3, &cells);
    assert!(report["cells"][0]["ratios"]["compio/pread"].is_object());
}

#[test]
fn without_ratios_it_says_what_they_need() {
    let dir = directory();
    for (contenders, rounds, why) in [
        ("pread", 9, "No ratios: there is one contender."),
        ("pread,preadv2", 2, "No ratios: they need 3 rounds."),
        ("pread,preadv2", 3, "Ratios: median"),
    ] {
        let args = "cached --size 1M --ops 100 --block 512,4K --threads 1";
        let args = format!("{args} --contenders {contenders} --rounds {rounds}");
        assert_says(&run(&mut bench(dir.path(), &args)).done(), &[why]);
    }
}

#[test]
fn a_file_that_is_named_stays_and_is_random() {
    let dir = directory();
    let args =
        "randread --file here --size 3M --ops 500 --rounds 1 --contenders preadv,nowait,local";
    let said = run(&mut bench(dir.path(), args)).done();
    assert_says(&said, &["in 1 file,"]);
    assert!(!said.out.contains('\x1b'), "colour is for terminals");
    let data = fs::read(dir.path().join("here")).unwrap();
    assert_eq!(data.len(), 3 << 20);
    let zeroes = data.iter().filter(|b| **b == 0).count();
    assert!(zeroes < data.len() / 200, "random bytes are rarely zero");
}

#[test]
fn an_existing_file_is_only_read() {
    let dir = directory();
    let file = dir.path().join("mine");
    fs::write(&file, vec![9u8; 100_000]).unwrap();
    let before = fs::metadata(&file).unwrap();
    let args = "randread --file mine --size 8M --ops 20 --rounds 1 --contenders preadv,local";
    // The file's own size is used, in whole blocks.
    assert_eq!(
        report(dir.path(), args)["settings"]["size"],
        100_000 / 4096 * 4096
    );
    let after = fs::metadata(&file).unwrap();
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    assert_eq!(fs::read(&file).unwrap(), vec![9u8; 100_000]);
}

#[test]
fn syscalls_prints_doctors_table_with_spread() {
    let dir = directory();
    let report = report(dir.path(), "syscalls --rounds 2");
    assert_eq!(
        (&report["area"], &report["settings"]["rounds"]),
        (&"syscalls".into(), &2.into())
    );
    // On a busy machine a handoff may be too slow to be measured.
    for key in ["null_call", "pread_4k_hit"] {
        let call = contenders(&report).find(|call| call["name"] == key);
        let call = call.unwrap_or_else(|| panic!("no {key}: {report}"));
        let median = number(&call["median"]["ns"]);
        let [min, max] = ["min", "max"].map(|end| number(&call["spread"]["ns"][end]));
        assert!(0.0 < min && min <= median && median <= max, "{call}");
        assert_eq!(call["rounds"].as_array().map(Vec::len), Some(2), "{key}");
    }
    let findings = &report["findings"];
    assert_eq!(findings["seed_break_even"], 0.3);
    let rate = findings["ask_first_break_even"]["median"].as_f64();
    assert!(rate.is_none_or(|rate| (0.0..=1.0).contains(&rate)));
    let said = run(&mut bench(dir.path(), "syscalls --rounds 1")).done();
    assert_says(&said, &["null call", "2015"]);
    assert_nothing_is_left(dir.path());
}

#[test]
fn mix_gives_the_figures_of_each_class_for_every_contender() {
    if !has_ring() {
        return;
    }
    let dir = directory();
    let args = "mix --file here --size 24M --ops 400 --rounds 3 --depth 8";
    let report = report(dir.path(), args);
    assert_shape(&report, "mix", 3, &format!(": {MIX}"));
    let settings = &report["settings"];
    assert_eq!(settings["block"][0], 16 << 10);
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
        for (i, round) in rounds_of(contender).iter().enumerate() {
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
    for (chart, class) in report["charts"]
        .as_array()
        .unwrap()
        .iter()
        .zip(["f1", "f2", "f3"])
    {
        let lines = chart["lines"].as_array().unwrap().iter();
        let lines: Vec<&str> = lines.map(|line| line["name"].as_str().unwrap()).collect();
        assert_eq!(
            (&chart["name"], lines.join(" ")),
            (&class.into(), MIX.into())
        );
    }
}

#[test]
fn mix_tables_fit_a_terminal() {
    let dir = directory();
    let args = "mix --size 24M --ops 300 --rounds 3 --contenders pool,pool+nowait,eager-threads,strict-threads";
    let said = run(&mut bench(dir.path(), args)).done();
    let words = "f1; f2; f3; <20us %; hit p99; p99 x pool; f1, % in; < 20 us";
    assert_says(&said, &words.split("; ").collect::<Vec<_>>());
    assert_nothing_is_left(dir.path());
}

#[test]
fn a_mix_that_runs_out_of_file_says_so() {
    let dir = directory();
    let report = report(
        dir.path(),
        "mix --size 3M --ops 4000 --rounds 1 --contenders pool",
    );
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
fn hitrate_reads_at_the_rates_asked_for_and_says_where_curves_cross() {
    let dir = directory();
    let args = "hitrate --size 16M --ops 1000 --rounds 3 --rates 100,0,30,30 --block 4K --order random --json";
    for backend in ["uring", "threads"]
        .into_iter()
        .filter(|b| *b == "threads" || has_ring())
    {
        let report = run(bench(dir.path(), args).env("NOWAIT_BACKEND", backend))
            .done()
            .json();
        let all = ["always", "never", "ask", "strict", "adaptive"];
        assert_eq!(names(&report), all.repeat(3), "rates once each, rising");
        let cells = cells_of(&report).iter();
        for (cell, contender) in cells.flat_map(|cell| {
            let contenders = cell["contenders"].as_array().unwrap().iter();
            contenders.map(move |contender| (cell, contender))
        }) {
            let (rate, name) = (&cell["parameters"]["rate"], &contender["name"]);
            for round in rounds_of(contender) {
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
            assert!(at["low95"].as_f64() <= at["median"].as_f64());
        }
        assert_eq!(curve["turn_over"]["of"], 1365);
        let chart = &report["charts"][0];
        assert_eq!(chart["name"], "hitrate-4K-random");
        assert!(chart["lines"].to_string().contains("adaptive"));
    }
}

#[test]
fn hitrate_tables_fit_and_linear_reads_go_upwards() {
    let dir = directory();
    let args = "hitrate --size 16M --ops 500 --rounds 3 --rates 0,100 --depth 1 --order linear --block 4K \
                --contenders always,never,adaptive";
    let said = run(&mut bench(dir.path(), args)).done();
    assert_says(
        &said,
        &[
            "4K linear, 100 % hits",
            "hit %",
            "in 2015",
            "at most",
            "beats asking from",
        ],
    );
    assert_eq!(files(dir.path()).len(), 0);
}
