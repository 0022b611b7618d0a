//! `nowait-bench ring`.

use serde_json::Value;
use slowdisk::{Filesystem, require};

use crate::common::{assert_shape, cells_of, devices_below, directory, report};

const SHORT: &str = "ring --seconds 0.02 --size 4M";

#[test]
fn the_results_have_the_shape_of_every_area() {
    let dir = directory();
    let all = report(dir.path(), &format!("{SHORT} --rounds 3 --file data"));
    assert_shape(
        &all,
        "ring",
        3,
        "plain: nowait io-uring\nfixed: nowait io-uring",
    );
    for (cell, registered) in cells_of(&all).iter().zip([false, true]) {
        assert_eq!(cell["parameters"]["registered"], registered);
    }
    let tables = all["tables"].as_array().unwrap();
    let titles: Vec<&Value> = tables.iter().map(|table| &table["title"]).collect();
    assert_eq!(titles, ["kops/s", "CPU us/op"]);
    for table in tables {
        let rows = [0, 1].map(|row| &table["rows"][row][0]["text"]);
        assert_eq!(rows, ["plain", "fixed"]);
        let columns = table["columns"].as_array().unwrap();
        assert!(columns.contains(&"nowait/io-uring".into()));
    }
}

#[test]
fn without_a_file_a_device_in_memory_is_read_and_removed() {
    require!(Filesystem::Tmpfs.available());
    let dir = directory();
    let all = report(dir.path(), &format!("{SHORT} --rounds 1"));
    let files = &all["settings"]["files"];
    assert!(
        files["paths"][0].as_str().unwrap().starts_with("/dev/loop"),
        "{files}"
    );
    assert_eq!(files["sizes"][0], 4 << 20);
    assert_eq!(devices_below(dir.path()), 0);
}
