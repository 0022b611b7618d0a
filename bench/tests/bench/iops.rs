//! `nowait-bench iops`: its results, its devices, and what it writes to.

use std::fs;
use std::path::Path;

use serde_json::Value;
use slowdisk::{Filesystem, LoopDevice, TestMount, Zram, require};

use crate::common::{
    assert_shape, bench, contenders, devices, devices_below, directory, report, run,
};

const SHORT: &str = "iops --seconds 0.02 --rounds 3 --size 16M";

const ONE: &str = "iops --seconds 0.02 --rounds 1 --tables latency --depths 1 --contenders local";

#[test]
fn every_contender_reads_a_file() {
    let dir = directory();
    let args = "--file data --count 2 --tables latency,per-core --depths 2,128 \
                --contenders local,local-fixed,shared,libaio,psync,spdk";
    let all = report(dir.path(), &format!("{SHORT} {args}"));
    let cells = "latency-2: local local-fixed shared libaio
                 per-core-128: local local-fixed shared libaio psync";
    assert_shape(&all, "iops", 3, cells);
    assert_eq!(all["settings"]["on"], "files");
    for (cell, (depth, devices)) in all["cells"]
        .as_array()
        .unwrap()
        .iter()
        .zip([(2, 1), (128, 2)])
    {
        let parameters = &cell["parameters"];
        assert_eq!(
            (&parameters["depth"], &parameters["devices"]),
            (&depth.into(), &devices.into())
        );
        for contender in cell["contenders"].as_array().unwrap() {
            assert!(
                contender["median"]["lat_us"]["p50"].as_f64() > Some(0.0),
                "{contender}"
            );
        }
        assert_eq!(cell["absent"][0]["name"], "spdk");
    }
    assert!(all["cells"][1]["ratios"]["psync/libaio"]["ops_per_s"]["median"].is_f64());
    // The row of psync has the number of operations in flight.
    let row = all["tables"][1]["rows"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&row[0]["text"], &row[1]["text"]),
        (&"psync".into(), &"1".into())
    );
    assert!(
        dir.path().join("data-1").exists(),
        "what the user named is kept"
    );
}

#[test]
fn devices_in_memory_are_made_and_taken_down() {
    require!(Filesystem::Tmpfs.available());
    let dir = directory();
    let args = "--tables peak,per-core --depths 4,128 --contenders local,libaio,local-polled";
    let all = report(dir.path(), &format!("{SHORT} {args}"));
    assert_shape(
        &all,
        "iops",
        3,
        "peak-4: local libaio\nper-core-128: local libaio",
    );
    assert_eq!(all["settings"]["on"], "loop");
    let peak = &all["cells"][0];
    assert_eq!(peak["parameters"]["block"], 512);
    assert_eq!(peak["absent"][0]["name"], "local-polled");
    assert!(
        peak["absent"][0]["why"].as_str().unwrap().contains("poll"),
        "{peak}"
    );
    assert_eq!(devices_below(dir.path()), 0, "{:?}", devices());
}

#[test]
fn zram_has_no_small_blocks_and_goes_too() {
    require!(Zram::available());
    let dir = directory();
    let args =
        "--memory zram --tables peak,per-core --depths 4,128 --contenders libaio,local --write";
    let all = report(dir.path(), &format!("{SHORT} {args}"));
    let settings = &all["settings"];
    assert_eq!(
        (&settings["on"], &settings["write"]),
        (&"zram".into(), &true.into())
    );
    for path in settings["files"]["paths"].as_array().unwrap() {
        let name = path.as_str().unwrap().strip_prefix("/dev/").unwrap();
        assert!(!Path::new("/sys/block").join(name).exists(), "{name}");
    }
}

#[test]
fn a_device_in_use_is_not_written_to() {
    require!(Filesystem::Ext4.available());
    let mount = TestMount::new(Filesystem::Ext4).expect("a fresh filesystem");
    let dir = directory();
    let read = format!(
        "{ONE} --device {}",
        mount.device().unwrap().path().display()
    );
    let said = run(bench(dir.path(), &read).arg("--write"));
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.err.contains("is in use") && said.err.contains("Unmount"),
        "{said:?}"
    );
    // Reading is allowed.
    assert_eq!(report(dir.path(), &read)["settings"]["on"], "devices");
}

#[test]
fn only_a_device_that_is_to_be_written_to_is() {
    require!(Filesystem::Tmpfs.available());
    let dir = directory();
    let (image, before) = (dir.path().join("image"), vec![7u8; 4 << 20]);
    fs::write(&image, &before).unwrap();
    let device = LoopDevice::attach(&image).unwrap();
    let path = device.path().to_str().unwrap();
    let args = format!("{ONE} --device {path}");
    let all: Value = report(dir.path(), &args);
    assert_eq!(contenders(&all["cells"][0]), ["local"]);
    assert!(fs::read(path).unwrap() == before, "it was only to be read");
    let said = run(bench(dir.path(), &args).args(["--write", "--json"]));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.err.contains("overwrites") && said.err.contains(path),
        "{said:?}"
    );
    assert!(fs::read(path).unwrap() != before);
}
