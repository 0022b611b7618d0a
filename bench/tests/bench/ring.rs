//! `nowait-bench ring`.

use std::fs;
use std::path::Path;

use serde_json::Value;
use slowdisk::{Filesystem, require};

use crate::common::{
    Said, assert_says, assert_shape, bench, devices, devices_below, directory, report, run,
};

const LIBURING: bool = cfg!(feature = "liburing");

const SHORT: &str = "ring --seconds 0.02 --depth 8 --batch 16";

/// `ring` on a file `data` of 1 MiB.
fn ring(dir: &Path, args: &str) -> Said {
    fs::write(dir.join("data"), vec![1u8; 1 << 20]).unwrap();
    run(&mut bench(dir, &format!("{SHORT} {args} data")))
}

#[test]
fn the_results_have_the_shape_of_every_area() {
    let dir = directory();
    let all = ring(dir.path(), "--rounds 3 --json").done().json();
    let names = if LIBURING {
        "nowait io-uring liburing"
    } else {
        "nowait io-uring"
    };
    assert_shape(&all, "ring", 3, &format!("plain: {names}\nfixed: {names}"));
    for (cell, registered) in all["cells"].as_array().unwrap().iter().zip([false, true]) {
        assert_eq!(cell["parameters"]["registered"], registered);
        assert_eq!(cell["parameters"]["batch"], 8, "not more than the depth");
    }
    let tables = all["tables"].as_array().unwrap();
    let titles: Vec<&Value> = tables.iter().map(|table| &table["title"]).collect();
    assert_eq!(titles, ["kops/s", "CPU us/op"]);
    for table in tables {
        let rows = [0, 1].map(|row| &table["rows"][row][0]["text"]);
        assert_eq!(rows, ["plain", "fixed"]);
        assert!(
            table["columns"]
                .as_array()
                .unwrap()
                .contains(&"nowait/io-uring".into())
        );
    }
}

#[test]
fn markdown_has_both_tables_and_svg_says_that_there_is_no_chart() {
    let dir = directory();
    let said = ring(
        dir.path(),
        "--rounds 1 --contenders io-uring --markdown --svg charts",
    )
    .done();
    for part in [
        "| kops/s | io-uring |",
        "| CPU us/op | io-uring |",
        "no chart",
    ] {
        assert!(said.out.contains(part), "{part}: {said:?}");
    }
}

#[test]
fn a_contender_that_is_missing_is_left_out_with_the_reason() {
    if LIBURING {
        return;
    }
    let dir = directory();
    let said = ring(dir.path(), "--rounds 1").done();
    assert_says(
        &said,
        &["`liburing` is left out", "--features liburing", "3 rounds"],
    );
    let said = ring(dir.path(), "--rounds 1 --contenders liburing").in_part();
    assert!(said.err.contains("liburing-dev"), "{said:?}");
}

#[test]
fn without_paths_a_device_in_memory_is_read_and_removed() {
    require!(Filesystem::Tmpfs.available());
    let dir = directory();
    let all = report(dir.path(), &format!("{SHORT} --rounds 1 --size 4M"));
    let files = &all["settings"]["files"];
    assert!(
        files["paths"][0].as_str().unwrap().starts_with("/dev/loop"),
        "{files}"
    );
    assert_eq!(files["sizes"][0], 4 << 20);
    assert_eq!(devices_below(dir.path()), 0, "{:?}", devices());
}
