//! `nowait-bench object-store`.

use std::fs;
use std::path::Path;

use slowdisk::{Filesystem, require};

use crate::common::{Said, directory, nowait_bench, run};

/// Runs `object-store` on a small object, for short turns.
fn object_store(dir: &Path, args: &str) -> Said {
    let mut command = nowait_bench([
        "object-store",
        "--size",
        "8M",
        "--objects",
        "1500",
        "--seconds",
        "0.02",
    ]);
    run(command.args(args.split_whitespace()).current_dir(dir))
}

#[test]
fn the_results_have_the_shape_of_every_area() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let dir = directory();
    let said = object_store(dir.path(), "--rounds 3 --json --slow-disk 1ms");
    assert_eq!(said.code, Some(0), "{said:?}");
    let all = said.json();
    assert_eq!(all["area"], "object-store");
    assert_eq!(all["interrupted"], false);
    let cells = all["cells"].as_array().unwrap();
    let works = [
        "warm-4K-1",
        "warm-4K-32",
        "cold-64K-32",
        "ranges-8K-100",
        "list",
    ];
    assert_eq!(cells.len(), works.len());
    for (cell, work) in cells.iter().zip(works) {
        assert_eq!(cell["name"], work);
        let contenders = cell["contenders"].as_array().unwrap();
        let names = ["nowait", "nowait-mapped", "local"];
        assert_eq!(contenders.len(), names.len());
        for (contender, name) in contenders.iter().zip(names) {
            assert_eq!(contender["name"], name);
            assert_eq!(contender["ours"], name != "local");
            assert_eq!(contender["rounds"].as_array().unwrap().len(), 3);
            assert!(contender["median"]["ops_per_s"].as_f64() > Some(0.0));
        }
        for ratio in ["nowait/local", "nowait-mapped/local"] {
            let ratio = &cell["ratios"][ratio]["ops_per_s"];
            assert!(ratio["median"].is_f64(), "{cell}");
        }
    }
    assert_eq!(all["tables"].as_array().unwrap().len(), 2);
    // The bench removes all files that it has made.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_object_of_the_user_is_read_and_kept() {
    let dir = directory();
    let path = dir.path().join("object");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let said = object_store(
        dir.path(),
        "--file object --works warm-4K-1,ranges-8K-100 --rounds 1 --contenders nowait --json",
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.json()["settings"]["size"], 1 << 20);
    assert_eq!(fs::read(&path).unwrap(), vec![7; 1 << 20]);
}
