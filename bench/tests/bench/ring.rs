//! `nowait-bench ring`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use slowdisk::{Filesystem, require};

use crate::common::{Said, devices, devices_below, directory, nowait_bench, run, unprivileged};

const LIBURING: bool = cfg!(feature = "liburing");

/// Runs `ring` on a file `data` of 1 MiB, for short turns.
fn ring(dir: &Path, args: &str) -> Said {
    fs::write(dir.join("data"), vec![1u8; 1 << 20]).unwrap();
    run(&mut short(dir, args))
}

/// `ring` with short turns.
fn short(dir: &Path, args: &str) -> Command {
    let mut command = nowait_bench(["ring", "--seconds", "0.02", "--depth", "8", "--batch", "16"]);
    command.args(args.split_whitespace()).current_dir(dir);
    command
}

#[test]
fn the_results_have_the_shape_of_every_area() {
    let dir = directory();
    let said = ring(dir.path(), "--rounds 3 --json data");
    assert_eq!(said.code, Some(0), "{said:?}");
    let all = said.json();
    assert_eq!(
        (&all["area"], &all["interrupted"]),
        (&"ring".into(), &false.into())
    );
    let mut names = vec!["nowait", "io-uring"];
    names.extend(LIBURING.then_some("liburing"));
    let cells = all["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    for (cell, (name, registered)) in cells.iter().zip([("plain", false), ("fixed", true)]) {
        assert_eq!(cell["name"], name);
        assert_eq!(cell["parameters"]["registered"], registered);
        assert_eq!(cell["parameters"]["batch"], 8, "not more than the depth");
        let contenders = cell["contenders"].as_array().unwrap();
        for (contender, name) in contenders.iter().zip(&names) {
            assert_eq!(contender["name"], **name);
            assert_eq!(contender["ours"], *name == "nowait");
            assert_eq!(contender["rounds"].as_array().unwrap().len(), 3);
            assert!(contender["median"]["ops_per_s"].as_f64() > Some(0.0));
        }
        assert_eq!(contenders.len(), names.len());
        for figure in ["ops_per_s", "cpu_us_per_op"] {
            let ratio = &cell["ratios"]["nowait/io-uring"][figure];
            assert!(ratio["median"].is_f64(), "{cell}");
        }
    }
    let tables = all["tables"].as_array().unwrap();
    let titles: Vec<&Value> = tables.iter().map(|table| &table["title"]).collect();
    assert_eq!(titles, ["kops/s", "CPU us/op"]);
    for table in tables {
        let first: Vec<&Value> = table["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| &row[0]["text"])
            .collect();
        assert_eq!(first, ["plain", "fixed"]);
        let columns = table["columns"].as_array().unwrap();
        assert!(columns.contains(&"nowait/io-uring".into()), "{columns:?}");
    }
}

#[test]
fn markdown_has_both_tables_and_svg_says_that_there_is_no_chart() {
    let dir = directory();
    let said = ring(
        dir.path(),
        "--rounds 1 --contenders io-uring --markdown --svg charts data",
    )
    .done();
    for part in [
        "| kops/s | io-uring |",
        "| CPU us/op | io-uring |",
        "no chart",
    ] {
        assert!(said.text().contains(part), "{part}: {said:?}");
    }
}

#[test]
fn a_contender_that_is_missing_is_left_out_with_the_reason() {
    if LIBURING {
        return;
    }
    let dir = directory();
    let said = ring(dir.path(), "--rounds 1 data").done();
    let words: Vec<&str> = said.text().split_whitespace().collect();
    let words = words.join(" ");
    for part in ["`liburing` is left out", "--features liburing", "3 rounds"] {
        assert!(words.contains(part), "{part}: {said:?}");
    }
    let said = ring(dir.path(), "--rounds 1 --contenders liburing data").in_part();
    assert!(said.err.contains("liburing-dev"), "{said:?}");
}

#[test]
fn wrong_input_is_refused_with_the_reason() {
    let dir = directory();
    fs::write(dir.path().join("small"), vec![1u8; 64 << 10]).unwrap();
    for (args, code, words) in [
        ("--size 256K", 2, "less than 100 blocks of 4K"),
        ("--size 1M data", 2, "cannot be used with"),
        ("nowhere", 1, "cannot open nowhere"),
        ("small", 2, "less than 100 blocks of 4K"),
        ("--block 1000 data", 2, "multiples of"),
        ("--block 2G data", 2, "too much memory"),
        ("--core 1023 data", 1, "cannot stay on core 1023"),
        ("--core 1024 data", 2, "1024"),
        ("--seconds 0 data", 2, "seconds"),
        ("--contenders fio data", 2, "io-uring"),
    ] {
        let said = ring(dir.path(), args);
        assert_eq!(said.code, Some(code), "{args}: {said:?}");
        assert!(said.err.contains(words), "{args}: {said:?}");
    }
}

#[test]
fn without_paths_a_device_in_memory_is_read_and_removed() {
    require!(Filesystem::Tmpfs.available());
    let (dir, tmp) = (directory(), directory());
    let all = run(short(dir.path(), "--rounds 1 --size 4M --json").env("TMPDIR", tmp.path()));
    assert_eq!(all.code, Some(0), "{all:?}");
    let files = &all.json()["settings"]["files"];
    let path = files["paths"][0].as_str().unwrap();
    assert!(path.starts_with("/dev/loop"), "{files}");
    assert_eq!(files["sizes"][0], 4 << 20);
    assert_eq!(devices_below(tmp.path()), 0, "{:?}", devices());
}

#[test]
fn a_device_in_memory_is_removed_after_an_interrupt() {
    require!(Filesystem::Tmpfs.available());
    let (dir, tmp) = (directory(), directory());
    let mut child = short(dir.path(), "--rounds 1000 --size 4M")
        .env("TMPDIR", tmp.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while devices_below(tmp.path()) == 0 {
        assert!(Instant::now() < end, "no device: {:?}", devices());
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(devices_below(tmp.path()), 0, "{:?}", devices());
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
}

#[test]
fn without_paths_and_root_a_file_is_read_and_removed() {
    require!(slowdisk::available());
    let everyone = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(everyone.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let words = "ring --rounds 1 --seconds 0.02 --size 1M".split(' ');
    let (mut command, _copy) = unprivileged(words);
    let said = run(command.current_dir(everyone.path()));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.text().contains("no root"), "{said:?}");
    assert_eq!(fs::read_dir(everyone.path()).unwrap().count(), 0);
    let said = run(command.current_dir("/")).in_part();
    assert!(said.err.contains("that you may write to"), "{said:?}");
}
