//! `nowait-bench compare`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{Said, directory, nowait_bench, report, run};

/// The JSON of a run of `cached` with two contenders.
fn measured(dir: &Path) -> Value {
    let args =
        "cached --size 1M --ops 500 --rounds 3 --block 4K --threads 1 --contenders pread,nowait";
    report(dir, args)
}

/// The run with all rates of one contender multiplied.
fn scaled(run: &Value, contender: usize, factor: f64) -> Value {
    let mut run = run.clone();
    let rounds = &mut run["cells"][0]["contenders"][contender]["rounds"];
    for round in rounds.as_array_mut().unwrap() {
        round["ops_per_s"] = json!(round["ops_per_s"].as_f64().unwrap() * factor);
    }
    run
}

fn compare(dir: &Path, old: &Value, new: &Value, more: &[&str]) -> Said {
    fs::write(dir.join("old"), old.to_string()).unwrap();
    fs::write(dir.join("new"), new.to_string()).unwrap();
    let args = ["compare", "old", "new"].iter().chain(more);
    run(nowait_bench(args).current_dir(dir))
}

#[test]
fn a_regression_beyond_the_bound_is_a_failure() {
    let dir = directory();
    let old = measured(dir.path());
    let same = compare(dir.path(), &old, &old, &[]);
    assert_eq!(same.code, Some(0), "{same:?}");
    assert!(same.out.contains("more than 5 %: 0"), "{same:?}");
    // A thousandth of the rate is worse than any spread of these rounds.
    let slow = scaled(&old, 1, 1e-3);
    let worse = compare(dir.path(), &old, &slow, &["--json"]);
    assert_eq!(worse.code, Some(1), "{worse:?}");
    let report = worse.json();
    assert_eq!(report["regressions"], 1);
    let ratios = report["ratios"].as_array().unwrap();
    let regressed = ratios.iter().find(|ratio| ratio["regressed"] == true);
    let regressed = regressed.unwrap();
    assert_eq!(
        (&regressed["contender"], &regressed["figure"]),
        (&"nowait".into(), &"ops_per_s".into())
    );
    // The other way round it is an improvement, and a large bound allows it.
    assert_eq!(compare(dir.path(), &slow, &old, &[]).code, Some(0));
    let other = compare(dir.path(), &old, &slow, &["--figures", "cpu_us_per_op"]);
    assert_eq!(other.code, Some(0), "{other:?}");
}

#[test]
fn runs_that_cannot_be_compared_are_refused() {
    let dir = directory();
    let old = measured(dir.path());
    let mut other = old.clone();
    other["area"] = "randread".into();
    let said = compare(dir.path(), &old, &other, &[]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("the same area"), "{said:?}");
    let said = compare(dir.path(), &old, &json!({"no": "run"}), &[]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.err.contains("new") && said.err.contains("--json"),
        "{said:?}"
    );
    let said = run(nowait_bench(["compare", "nowhere", "old"]).current_dir(dir.path()));
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("nowhere"), "{said:?}");
}
