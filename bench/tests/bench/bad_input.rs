//! Bad input and bad circumstances for every area: each gives one message that says what to do and the
//! documented exit code, and leaves nothing.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};
use slowdisk::{Filesystem, TestMount, require};

use crate::common::{
    Said, assert_nothing_is_left, devices_below, directory, drop_in, mounts, names, nowait_bench,
    run, unprivileged, until,
};

/// One area, with options for short turns on files of SIZE.
struct Area {
    words: &'static str,
    /// The area makes files of --size in the current directory.
    makes_files: bool,
}

/// A command of each area. `ring` and `iops` make files only without root.
const AREAS: [Area; 13] = [
    made("aio --rows random-cold-32 --seconds 0.05 --rounds 1"),
    made("randread --contenders preadv --seconds 0.05 --rounds 1"),
    made("cached --contenders pread --block 4K --threads 1 --seconds 0.05 --rounds 1"),
    made("mix --contenders pool --seconds 0.05 --rounds 1"),
    made("hitrate --rates 50 --block 4K --ops 200 --rounds 1"),
    made("race --pressures none --delays 0 --seconds 0.02 --rounds 1"),
    made("iops --file made --tables latency --seconds 0.02 --contenders local --rounds 1"),
    made("runtimes --file made --cells cached-4K-1 --peers nowait --seconds 0.02 --rounds 1"),
    own("syscalls --rounds 1"),
    own("dir --warm --files 500 --rounds 1"),
    own("ahead --warm --files 500 --programs du --contenders direct --rounds 1"),
    own("ring --size 4M --seconds 0.02 --rounds 1"),
    own("tools --tables tiny --scale 0.05 --rounds 1"),
];

const fn made(words: &'static str) -> Area {
    Area {
        words,
        makes_files: true,
    }
}

const fn own(words: &'static str) -> Area {
    Area {
        words,
        makes_files: false,
    }
}

impl Area {
    /// The command in a directory that also has its temporary files.
    fn command(&self, here: &Path, size: &str) -> Command {
        let mut command = nowait_bench(self.words.split(' '));
        if self.makes_files {
            command.args(["--size", size]);
        }
        if self.words.starts_with("aio") {
            command.arg("--library").arg(drop_in());
        }
        command.current_dir(here).env("TMPDIR", here);
        command
    }

    fn name(&self) -> &str {
        self.words.split(' ').next().unwrap()
    }
}

/// Runs a check for all areas, a few at a time.
fn each_area(check: impl Fn(&Area) + Sync) {
    for areas in AREAS.chunks(4) {
        thread::scope(|scope| {
            for area in areas {
                scope.spawn(|| check(area));
            }
        });
    }
}

/// Asserts that a run failed with one message of one line, which has these words.
fn failed(said: &Said, area: &Area, code: i32, words: &[&str]) {
    let area = area.words;
    assert_eq!(said.code, Some(code), "{area}: {said:?}");
    assert!(said.err.starts_with("nowait-bench: "), "{area}: {said:?}");
    assert_eq!(said.err.lines().count(), 1, "{area}: {said:?}");
    for word in words {
        assert!(said.err.contains(word), "{area}: {word}: {said:?}");
    }
}

/// A small ext4 filesystem that has few inodes.
fn small_disk(here: &Path) -> TestMount {
    let disk = TestMount::builder(Filesystem::Ext4).size(24 << 20);
    let disk = disk.mkfs_arg("-N64").build().unwrap();
    assert!(!disk.path().starts_with(here));
    disk
}

/// Runs each area that needs space on a disk that has too little.
fn without_space(disk: &Path, words: &[&str]) {
    each_area(|area| {
        // The others need no space, or make a device in memory.
        if !area.makes_files && !["ahead", "dir", "tools"].contains(&area.name()) {
            return;
        }
        let said = run(&mut area.command(disk, "64M"));
        let remedy = match area.name() {
            "ahead" | "dir" => "choose fewer --files",
            "tools" => "choose a smaller --scale",
            _ => "choose a smaller --size",
        };
        failed(&said, area, 1, &[words, &[remedy]].concat());
    });
}

#[test]
fn a_full_disk() {
    require!(Filesystem::Ext4.available());
    let here = directory();
    let disk = small_disk(here.path());
    without_space(disk.path(), &["no space", "free"]);
    assert_eq!(names(disk.path()), ["lost+found"]);
}

#[test]
fn a_disk_without_inodes() {
    require!(Filesystem::Ext4.available());
    let here = directory();
    let disk = small_disk(here.path());
    let file = |n: usize| disk.path().join(n.to_string());
    let files = (0..).take_while(|n| fs::File::create(file(*n)).is_ok());
    assert!((1..64).contains(&files.count()));
    without_space(disk.path(), &["no space", "no inode free"]);
}

#[test]
fn sizes_that_make_no_sense() {
    let here = directory();
    each_area(|area| {
        if !area.makes_files {
            return;
        }
        let said = run(&mut area.command(here.path(), "900T"));
        failed(
            &said,
            area,
            1,
            &["no space for 900T", "choose a smaller --size"],
        );
        let said = run(&mut area.command(here.path(), "0"));
        assert_eq!(said.code, Some(2), "{}: {said:?}", area.words);
        assert!(
            said.err.contains("greater than 0") || said.err.contains("at least"),
            "{said:?}"
        );
    });
    assert_nothing_is_left(here.path());
}

#[test]
fn a_directory_that_is_not_writable() {
    each_area(|area| {
        // It also measures without a file.
        if area.name() == "syscalls" {
            return;
        }
        let (mut command, copy) = unprivileged(area.words.split(' '));
        let library = copy.path().join("libnowait_aio.so");
        if area.name() == "aio" {
            fs::copy(drop_in(), &library).unwrap();
            command.arg("--library").arg(library);
        }
        let said = run(command.current_dir("/"));
        failed(&said, area, 1, &["that you may write to"]);
    });
}

/// Without root each area runs in a directory of the user.
#[test]
fn a_user_without_root() {
    each_area(|area| {
        let here = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(here.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let (mut command, copy) = unprivileged(area.words.split(' '));
        if area.makes_files {
            command.args(["--size", "16M"]);
        }
        let copied = |from: &Path, name: &str| {
            let to = copy.path().join(name);
            slowdisk::copy_program(from, &to).unwrap();
            to
        };
        if area.name() == "aio" {
            command
                .arg("--library")
                .arg(copied(&drop_in(), "libnowait_aio.so"));
        }
        let said = run(command.current_dir(here.path()));
        assert_eq!(said.code, Some(0), "{}: {said:?}", area.words);
    });
}

#[test]
fn standard_output_that_is_closed_or_full() {
    each_area(|area| {
        let here = directory();
        let mut command = area.command(here.path(), "16M");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let said = Said::of(&child.wait_with_output().unwrap());
        said.done();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = area.command(here.path(), "16M");
        let command = command.arg("--json").stdout(full).stderr(Stdio::piped());
        let said = Said::of(&command.spawn().unwrap().wait_with_output().unwrap());
        failed(
            &said,
            area,
            1,
            &["cannot print the results", "another file"],
        );
    });
}

#[test]
fn unknown_contenders() {
    let here = directory();
    for (area, known) in [
        ("aio", "glibc, nowait, io_uring"),
        ("randread", "preadv, threads, uring"),
        ("cached", "preadv2, nowait"),
        ("mix", "pool, pool+nowait"),
        ("hitrate", "always, never"),
        ("ahead", "direct, run"),
        ("dir", "getdents+stat, xgetdents"),
        ("iops", "local, local-fixed"),
        ("runtimes", "nowait"),
        ("ring", "nowait, io-uring"),
        ("object-store", "nowait, nowait-mapped, local"),
        ("tools", "nowait, vmtouch"),
    ] {
        let option = if area == "runtimes" {
            "--peers"
        } else {
            "--contenders"
        };
        let said = run(nowait_bench([area, option, "zzz"]).current_dir(here.path()));
        assert_eq!(said.code, Some(2), "{area}: {said:?}");
        assert!(
            said.err.contains("zzz") && said.err.contains(known),
            "{area}: {said:?}"
        );
    }
}

/// Programs that are missing are left out, or the message names the package.
#[test]
fn an_empty_path() {
    each_area(|area| {
        let here = directory();
        let said = run(area.command(here.path(), "16M").env("PATH", "/nonexistent"));
        match area.name() {
            "aio" => failed(&said, area, 1, &["fio", "apt-get install fio"]),
            "ahead" => failed(&said, area, 1, &["du", "apt-get install coreutils"]),
            _ => assert_eq!(said.code, Some(0), "{}: {said:?}", area.words),
        }
    });
}

/// A file of the user that another program truncates or removes while it is measured.
#[test]
fn a_file_that_changes() {
    let long = "--seconds 0.1 --rounds 1000";
    for (words, count) in [
        ("aio --rows random-warm-1", 2),
        ("randread --contenders preadv,nowait", 1),
        ("cached --contenders pread,nowait", 1),
        ("mix --contenders pool,ring", 3),
        ("race --pressures none,evict --delays 0", 1),
        (
            "iops --count 1 --tables latency --contenders local,psync",
            1,
        ),
        (
            "runtimes --size 32M --cells cached-4K-1 --peers nowait,pread",
            1,
        ),
    ] {
        for gone in [false, true] {
            let here = directory();
            let paths: Vec<_> = match count {
                1 => vec![here.path().join("data")],
                _ => (0..count)
                    .map(|i| here.path().join(format!("data-{i}")))
                    .collect(),
            };
            for path in &paths {
                fs::write(path, vec![7; 32 << 20]).unwrap();
            }
            let mut command = nowait_bench(words.split(' ').chain(long.split(' ')));
            if words.starts_with("aio") {
                command.arg("--library").arg(drop_in());
            }
            let command = command.args(["--file", "data"]).current_dir(here.path());
            let child = command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            thread::sleep(std::time::Duration::from_millis(400));
            for path in &paths {
                match gone {
                    true => fs::remove_file(path).unwrap(),
                    false => drop(File::create(path).unwrap()),
                }
            }
            let said = Said::of(&child.wait_with_output().unwrap());
            let area = own(words);
            let area = Area { ..area };
            failed(
                &said,
                &area,
                1,
                &["another program has", "no other program changes"],
            );
        }
    }
}

/// Ctrl-C of a terminal goes to the whole process group. It ends each area in each of its phases, with
/// exit code 130, and nothing is left.
#[test]
fn ctrl_c_in_every_phase() {
    require!(slowdisk::available());
    // The directory for temporary files is inside: mounts and devices are found by it.
    let long = [
        "aio --size 64M --seconds 5",
        "randread --size 64M --ops 10000 --rounds 1000",
        "cached --size 64M --seconds 5",
        "mix --size 64M --seconds 5",
        "hitrate --size 64M --ops 1000 --rounds 1000",
        "syscalls --rounds 1000",
        "race --size 64M --seconds 1 --rounds 1000",
        "ahead --slow-disk 1ms --files 500 --programs find --contenders direct --rounds 1000",
        "dir --warm --files 20k --rounds 1000",
        "dir --slow-disk 1ms --files 500 --rounds 1000",
        "iops --size 64M --seconds 5",
        "runtimes --file made --size 64M --seconds 5",
        "ring --size 64M --seconds 5",
        "tools --scale 0.01 --rounds 1000",
    ];
    for milliseconds in [5, 40, 150, 500, 1500] {
        for words in long.chunks(5) {
            thread::scope(|scope| {
                for words in words {
                    scope.spawn(move || interrupted(words, milliseconds));
                }
            });
        }
    }
}

fn interrupted(words: &str, milliseconds: u64) {
    use std::os::unix::process::CommandExt;

    let here = directory();
    let mut command = nowait_bench(words.split(' '));
    if words.starts_with("aio") {
        command.arg("--library").arg(drop_in());
    }
    command
        .current_dir(here.path())
        .env("TMPDIR", here.path())
        .process_group(0);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let group = Pid::from_child(&child);
    // Before it has caught the signal, a program ends by it.
    until("it catches SIGINT", || catches_int(group));
    thread::sleep(std::time::Duration::from_millis(milliseconds));
    kill_process_group(group, Signal::INT).unwrap();
    let said = Said::of(&child.wait_with_output().unwrap());
    let at = format!("{words} after {milliseconds} ms");
    assert_eq!(said.code, Some(130), "{at}: {said:?}");
    match said.out.is_empty() {
        true => assert_eq!(
            said.err, "nowait-bench: interrupted before anything was done\n",
            "{at}"
        ),
        false => assert_eq!(said.err, "", "{at}"),
    }
    assert_eq!(devices_below(here.path()), 0, "{at}");
    assert_eq!(mounts(here.path()), Vec::<String>::new(), "{at}");
    // A file that the user has named is kept once it is complete.
    let left = names(here.path());
    assert!(
        left.is_empty() || left == ["made"] && words.contains("made"),
        "{at}: {left:?}"
    );
    // The process that would clean up after a killed one ends a moment later.
    let is_gone = || kill_process_group(group, Signal::CONT).is_err();
    until(&format!("{at}: all processes end"), is_gone);
}

/// Returns true if a process has a handler for SIGINT.
fn catches_int(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    let status = status.unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 2 != 0)
}
