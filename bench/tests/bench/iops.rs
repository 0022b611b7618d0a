//! `nowait-bench iops`: its results, its errors, and the removal of what it makes. No test depends on a
//! time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use slowdisk::{Filesystem, LoopDevice, TestMount, Zram, require};

use crate::common::{PROGRAM, Said, devices, devices_below, directory, nowait_bench, run};

fn iops(dir: &Path, args: &str) -> std::process::Command {
    let mut command = nowait_bench(["iops"]);
    command
        .args(args.split_whitespace())
        .current_dir(dir)
        .env_remove("NOWAIT_BACKEND");
    command
}

fn report(dir: &Path, args: &str) -> Value {
    let said = run(iops(dir, args).arg("--json"));
    assert_eq!(said.code, Some(0), "{said:?}");
    said.json()
}

fn refused(dir: &Path, args: &str) -> Said {
    let said = run(&mut iops(dir, args));
    assert_eq!(said.code, Some(2), "{said:?}");
    said
}

fn contenders(cell: &Value) -> Vec<&str> {
    let all = cell["contenders"].as_array().unwrap().iter();
    all.map(|contender| contender["name"].as_str().unwrap())
        .collect()
}

const SHORT: &str = "--seconds 0.02 --rounds 3 --size 16M";

#[test]
fn a_file_is_read_by_everybody_and_the_ratios_are_there() {
    let dir = directory();
    let all = report(
        dir.path(),
        &format!(
            "{SHORT} --file data --count 2 --tables latency,per-core --depths 2,128 \
             --contenders local,local-fixed,shared,libaio,psync,spdk"
        ),
    );
    assert_eq!(
        (&all["area"], &all["interrupted"]),
        (&"iops".into(), &false.into())
    );
    assert_eq!(all["settings"]["on"], "files");
    let cells = all["cells"].as_array().unwrap();
    let [latency, per_core] = &cells[..] else {
        panic!("{cells:?}");
    };
    for (cell, name, depth, devices) in [
        (latency, "latency-2", 2, 1),
        (per_core, "per-core-128", 128, 2),
    ] {
        assert_eq!(cell["name"], name);
        assert_eq!(cell["parameters"]["depth"], depth);
        assert_eq!(cell["parameters"]["devices"], devices);
        for contender in cell["contenders"].as_array().unwrap() {
            assert_eq!(contender["rounds"].as_array().unwrap().len(), 3);
            let figure = |pointer| contender["median"].pointer(pointer).unwrap().as_f64();
            assert!(figure("/ops") > Some(0.0), "{contender}");
            assert!(figure("/lat_us/p50") > Some(0.0), "{contender}");
        }
        assert_eq!(cell["absent"][0]["name"], "spdk");
    }
    let all_but_psync = ["local", "local-fixed", "shared", "libaio"];
    assert_eq!(contenders(latency), all_but_psync);
    assert_eq!(
        contenders(per_core),
        [&all_but_psync[..], &["psync"]].concat()
    );
    let ratio = &per_core["ratios"]["local-fixed/libaio"]["ops_per_s"];
    assert!(ratio["median"].as_f64() > Some(0.0), "{per_core}");
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
fn without_ratios_it_says_what_they_need() {
    let dir = directory();
    for (contenders, rounds, why) in [
        ("local", 3, Some("there is one contender")),
        ("local,libaio", 2, Some("they need 3 rounds")),
        ("local,libaio", 3, None),
    ] {
        let args = format!(
            "--seconds 0.02 --rounds {rounds} --size 16M --file data --tables latency --depths 1 \
             --contenders {contenders}"
        );
        let said = run(&mut iops(dir.path(), &args));
        assert_eq!(said.code, Some(0), "{said:?}");
        match why {
            Some(why) => assert!(
                said.text().contains(&format!("No ratios: {why}.")),
                "{said:?}"
            ),
            None => assert!(!said.text().contains("No ratios"), "{said:?}"),
        }
    }
}

#[test]
fn devices_in_memory_are_made_and_taken_down() {
    require!(Filesystem::Tmpfs.available());
    let dir = directory();
    let all = report(
        dir.path(),
        &format!(
            "{SHORT} --tables peak,per-core --depths 4,128 --contenders local,libaio,local-polled"
        ),
    );
    assert_eq!(all["settings"]["on"], "loop");
    let peak = &all["cells"][0];
    assert_eq!(peak["parameters"]["block"], 512);
    let absent = &peak["absent"][0];
    assert_eq!(absent["name"], "local-polled");
    let why = absent["why"].as_str().unwrap();
    assert!(why.contains("poll"), "{why}");
    for path in all["settings"]["files"]["paths"].as_array().unwrap() {
        let name = path.as_str().unwrap().strip_prefix("/dev/").unwrap();
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        let backing = fs::read_to_string(backing).unwrap_or_default();
        assert!(
            !backing.contains("disk-0"),
            "{name} is still there: {backing}"
        );
    }
}

#[test]
fn zram_has_no_small_blocks_and_goes_too() {
    require!(Zram::available());
    let dir = directory();
    let all = report(
        dir.path(),
        &format!(
            "{SHORT} --memory zram --tables peak,per-core --depths 4,128 --contenders libaio,local --write"
        ),
    );
    assert_eq!(
        (&all["settings"]["on"], &all["settings"]["write"]),
        (&"zram".into(), &true.into())
    );
    for path in all["settings"]["files"]["paths"].as_array().unwrap() {
        let name = path.as_str().unwrap().strip_prefix("/dev/").unwrap();
        assert!(!Path::new("/sys/block").join(name).exists(), "{name}");
    }
}

#[test]
fn interrupted_it_says_what_it_has_and_takes_everything_down() {
    require!(Filesystem::Tmpfs.available());
    let dir = directory();
    let tmp = directory();
    let mut child = iops(
        dir.path(),
        "--tables per-core --contenders local --seconds 0.02 --rounds 1000 --size 8M --json",
    )
    .env("TMPDIR", tmp.path())
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    let mine = || devices_below(tmp.path());
    let end = Instant::now() + Duration::from_secs(30);
    while mine() < 4 {
        assert!(Instant::now() < end, "no devices: {:?}", devices());
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert_eq!(mine(), 0, "{:?}", devices());
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
}

#[test]
fn a_device_in_use_is_not_written_to() {
    require!(Filesystem::Ext4.available());
    let mount = TestMount::new(Filesystem::Ext4).expect("a fresh filesystem");
    let dir = directory();
    let device = mount.device().unwrap().path().to_str().unwrap();
    let said = refused(
        dir.path(),
        &format!("{SHORT_DEVICE} --write --device {device}"),
    );
    assert!(
        said.err.contains("is in use") && said.err.contains("Unmount"),
        "{said:?}"
    );
    // Reading is allowed.
    let all = report(dir.path(), &format!("{SHORT_DEVICE} --device {device}"));
    assert_eq!(all["settings"]["on"], "devices");
}

const SHORT_DEVICE: &str =
    "--seconds 0.02 --rounds 1 --tables latency --depths 1 --contenders local";

#[test]
fn only_a_device_that_is_to_be_written_to_is() {
    require!(Filesystem::Tmpfs.available());
    let dir = directory();
    let (image, before) = (dir.path().join("image"), vec![7u8; 4 << 20]);
    fs::write(&image, &before).unwrap();
    let device = LoopDevice::attach(&image).unwrap();
    let path = device.path().to_str().unwrap();
    report(dir.path(), &format!("{SHORT_DEVICE} --device {path}"));
    assert!(fs::read(path).unwrap() == before, "it was only to be read");
    let said =
        run(iops(dir.path(), &format!("{SHORT_DEVICE} --device {path}"))
            .args(["--write", "--json"]));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.err.contains("overwrites") && said.err.contains(path),
        "{said:?}"
    );
    assert!(fs::read(path).unwrap() != before);
}

#[test]
fn what_makes_no_sense_is_refused_with_what_to_do() {
    let dir = directory();
    fs::write(dir.path().join("mine"), vec![7u8; 1 << 20]).unwrap();
    let said = refused(dir.path(), "--write --count 1 --file mine");
    assert!(said.err.contains("there already"), "{said:?}");
    assert!(fs::read(dir.path().join("mine")).unwrap() == vec![7u8; 1 << 20]);
    let said = refused(dir.path(), "--device mine");
    assert!(
        said.err.contains("no block device") && said.err.contains("--file"),
        "{said:?}"
    );
    let said = refused(dir.path(), "--file a --device /dev/loop0");
    assert!(said.err.contains("cannot be used with"), "{said:?}");
}

#[test]
fn without_root_files_are_read_and_it_says_so() {
    require!(slowdisk::available());
    // A directory that every user may enter and write.
    let dir: PathBuf = tempfile::tempdir_in("/var/tmp").unwrap().keep();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    let program = dir.join("nowait");
    // Another process makes the copy: a child that another test starts at the same time would inherit a
    // descriptor that is open for writing.
    let copied = std::process::Command::new("cp")
        .args([Path::new(PROGRAM), &program])
        .status();
    assert!(copied.unwrap().success());
    let unprivileged = |args: &str| {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new(&program);
        command
            .args(["iops"])
            .args(args.split_whitespace())
            .current_dir(&dir)
            .uid(65534)
            .gid(65534);
        run(&mut command)
    };
    let said = unprivileged(&format!("{SHORT_DEVICE} --size 16M"));
    let refused = unprivileged("--memory loop");
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(said.code, Some(0), "{said:?}");
    let words = said.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("no root") && words.contains("sudo"),
        "{words}"
    );
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("sudo"), "{refused:?}");
}
