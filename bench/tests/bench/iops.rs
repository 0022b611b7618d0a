//! `nowait-bench iops`: its results and its devices.

use slowdisk::{Filesystem, require};

use crate::common::{assert_shape, cells_of, devices_below, directory, report, rows};

const SHORT: &str = "iops --seconds 0.02 --rounds 3 --size 16M";

#[test]
fn every_contender_reads_a_file() {
    let dir = directory();
    let args = "--file data --tables latency,per-core --depths 2,128 \
                --contenders local,local-fixed,shared,libaio,psync";
    let all = report(dir.path(), &format!("{SHORT} {args}"));
    let cells = "latency-2: local local-fixed shared libaio
                 per-core-128: local local-fixed shared libaio psync";
    assert_shape(&all, "iops", 3, cells);
    assert_eq!(all["settings"]["on"], "files");
    let cells = cells_of(&all);
    for (cell, (depth, devices)) in cells.iter().zip([(2, 1), (128, 4)]) {
        let parameters = &cell["parameters"];
        assert_eq!(
            (&parameters["depth"], &parameters["devices"]),
            (&depth.into(), &devices.into())
        );
        for contender in rows(cell) {
            let p50 = contender["median"]["lat_us"]["p50"].as_f64();
            assert!(p50 > Some(0.0), "{contender}");
        }
    }
    assert!(cells[1]["ratios"]["psync/libaio"]["ops_per_s"]["median"].is_f64());
    // The row of psync has the number of operations in flight.
    let row = all["tables"][1]["rows"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&row[0]["text"], &row[1]["text"]),
        (&"psync".into(), &"1".into())
    );
    assert!(
        dir.path().join("data-3").exists(),
        "what the user named is kept"
    );
}

#[test]
fn devices_in_memory_are_made_and_taken_down() {
    require!(Filesystem::Tmpfs.available());
    let dir = directory();
    let args = "--tables peak,per-core --depths 4,128 --contenders local,libaio";
    let all = report(dir.path(), &format!("{SHORT} {args}"));
    assert_shape(
        &all,
        "iops",
        3,
        "peak-4: local libaio\nper-core-128: local libaio",
    );
    assert_eq!(all["settings"]["on"], "loop");
    assert_eq!(all["cells"][0]["parameters"]["block"], 512);
    assert_eq!(devices_below(dir.path()), 0);
}
