//! Bad input and bad circumstances for every area: each gives one message that says what to do and the
//! documented exit code, and leaves nothing.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use slowdisk::{Filesystem, TestMount, require};

use crate::common::{
    Said, assert_nothing_is_left, bench, devices_below, directory, drop_in, mounts, names, run,
    spawned, unprivileged, until,
};

/// A command of each area, for short turns on files of --size. `ring` makes a file only without root.
const MADE: [&str; 8] = [
    "aio --rows random-cold-32 --seconds 0.05 --rounds 1",
    "randread --contenders preadv --seconds 0.05 --rounds 1",
    "cached --contenders pread --block 4K --threads 1 --seconds 0.05 --rounds 1",
    "mix --contenders pool --seconds 0.05 --rounds 1",
    "hitrate --rates 50 --block 4K --ops 200 --rounds 1",
    "race --pressures none --delays 0 --seconds 0.02 --rounds 1",
    "iops --file made --tables latency --seconds 0.02 --contenders local --rounds 1",
    "runtimes --file made --cells cached-4K-1 --peers nowait --seconds 0.02 --rounds 1",
];

/// The same for areas that make no file of --size.
const OTHERS: [&str; 6] = [
    "syscalls --rounds 1",
    "dir --warm --files 500 --rounds 1",
    "ahead --warm --files 500 --programs du --contenders direct --rounds 1",
    "ring --size 4M --seconds 0.02 --rounds 1",
    "tools --tables tiny --scale 0.05 --rounds 1",
    "asks --seconds 0.02 --rounds 1",
];

/// The command in a directory that also has its temporary files.
fn command(area: &str, here: &Path, size: &str) -> Command {
    let mut command = bench(here, area);
    if MADE.contains(&area) {
        command.args(["--size", size]);
    }
    command
}

fn name(area: &str) -> &str {
    area.split(' ').next().unwrap()
}

/// Runs a check for all areas, a few at a time.
fn each_area(check: impl Fn(&str) + Sync) {
    for areas in [&MADE[..4], &MADE[4..], &OTHERS] {
        thread::scope(|scope| {
            for area in areas {
                scope.spawn(|| check(area));
            }
        });
    }
}

/// Asserts that a run failed with one message of one line, which has these words.
fn failed(said: &Said, area: &str, code: i32, words: &[&str]) {
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
        if !MADE.contains(&area) && !["ahead", "dir", "tools"].contains(&name(area)) {
            return;
        }
        let said = run(&mut command(area, disk, "64M"));
        let remedy = match name(area) {
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
        if !MADE.contains(&area) {
            return;
        }
        let said = run(&mut command(area, here.path(), "900T"));
        failed(
            &said,
            area,
            1,
            &["no space for 900T", "choose a smaller --size"],
        );
        let said = run(&mut command(area, here.path(), "0"));
        assert_eq!(said.code, Some(2), "{}: {said:?}", area);
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
        if name(area) == "syscalls" {
            return;
        }
        let (mut command, copy) = unprivileged(area.split(' '));
        let library = copy.path().join("libnowait_aio.so");
        if name(area) == "aio" {
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
        let (mut command, copy) = unprivileged(area.split(' '));
        if MADE.contains(&area) {
            command.args(["--size", "16M"]);
        }
        let copied = |from: &Path, name: &str| {
            let to = copy.path().join(name);
            slowdisk::copy_program(from, &to).unwrap();
            to
        };
        if name(area) == "aio" {
            command
                .arg("--library")
                .arg(copied(&drop_in(), "libnowait_aio.so"));
        }
        let said = run(command.current_dir(here.path()));
        assert_eq!(said.code, Some(0), "{}: {said:?}", area);
        // The devices in memory of root are missing.
        assert_eq!(
            said.out.contains("no root"),
            name(area) == "ring",
            "{said:?}"
        );
    });
}

/// All areas print their results by the same function.
#[test]
fn standard_output_that_is_closed_or_full() {
    let (area, here) = (MADE[2], directory());
    let mut child = spawned(&mut command(area, here.path(), "16M"));
    drop(child.stdout.take());
    Said::of(&child.wait_with_output().unwrap()).done();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = command(area, here.path(), "16M");
    let command = command.arg("--json").stdout(full).stderr(Stdio::piped());
    let said = Said::of(&command.spawn().unwrap().wait_with_output().unwrap());
    failed(
        &said,
        area,
        1,
        &["cannot print the results", "another file"],
    );
}

/// The exit code, the command, and parts of the message, which semicolons separate.
const REFUSED: &str = "
2 | | randread; cached; syscalls
2 | ahead --files 0 | number of files
2 | ahead --trees none | many
2 | ahead --programs none | restic
2 | ahead --contenders zzz | zzz; direct, run
2 | ahead --bytes x | size
2 | ahead --fs xfs | --slow-disk
2 | ahead --rounds 0 | 1000
1 | ahead --warm --contenders data | libnowait_ahead.so
1 | ahead --warm --nowait /nowhere | /nowhere
1 | ahead --warm --libraries / --contenders run | --libraries
2 | aio --contenders zzz | zzz; glibc, nowait, io_uring
1 | aio --library nowhere.so | nowhere.so; --library
2 | randread --contenders preadv,zzz | zzz; possible values; preadv, threads, uring
2 | randread --size 4Q | 4Q; K, M, G or T
2 | randread --size 2K | --size 2K; raise
2 | randread --ops 5 --seconds 1 | --seconds
2 | randread --size 1M --ops 257 | 256 blocks; --size
1 | randread --file tiny | tiny; 100 bytes; --block
1 | randread --file . | not a regular file
1 | randread --size 4000T | no space; --size
1 | randread --file not/there | not
2 | cached --contenders zzz | zzz; preadv2, nowait; nowait-future; local-1
1 | cached --file /dev/null | not a regular file
2 | mapped --borrow 12 | --borrow 12; multiple of 8
2 | mix --contenders zzz | zzz; pool, pool+nowait; eager-threads
2 | mix --size 96K | --size 96K; raise
1 | mix --file not/there | not
1 | mix --file small | smaller --block
2 | hitrate --rates 0,101 | 101; 0..=100
2 | hitrate --order up | random; linear
2 | hitrate --contenders zzz | zzz; always, never, ask
2 | hitrate --ops 5 --seconds 1 | --seconds
2 | hitrate --size 1M --ops 257 | blocks; --size
2 | syscalls --rounds 0 | 1..=1000
1 | syscalls not/there | not/there; that exists
2 | race --delays 5 | `5`; us, ms or s
2 | race --delays 1h | 1h
2 | race --delays 0,100ms | --seconds; --delays
2 | race --pressures none,much | much; heavy; evict
2 | race --file mine | 1M of file; --size; none,evict
2 | race --size 4M | least; --size
2 | race --rounds 0 | --rounds
1 | race --file /dev/null | not a regular file
2 | dir --files 0 | number of files
2 | dir --files 10q | number of files
2 | dir --windows v0d1 | v16384d10000
2 | dir --slow-disk 5 | ms
2 | dir --slow-disk 1ms --fs tmpfs | ext4
2 | dir --queue 4 | --slow-disk
2 | dir --fs xfs | --slow-disk
2 | dir --rounds 0 | 1000
2 | dir --contenders zzz | zzz; getdents+stat, xgetdents
2 | iops --contenders zzz | zzz; local, local-fixed
2 | iops --size 1M | less than 100 blocks of 4K for each of 4
2 | runtimes --peers zzz | zzz; nowait
1 | runtimes --cells lukewarm | no cell is called lukewarm; there are: cached-4K-1
1 | runtimes --file tiny --size 4M | less than one block of 4M
2 | keep-cache --programs zzz | zzz; tar, cp
2 | keep-cache --states warm | warm; cold, half
2 | keep-cache --contenders zzz | zzz; direct, nowait, surveys, nocache
2 | keep-cache --large x | size
2 | keep-cache --fs xfs | --slow-disk
1 | keep-cache --nowait /nowhere | /nowhere
2 | ring --contenders zzz | zzz; nowait, io-uring
2 | ring --size 256K | less than 100 blocks of 4K
1 | ring --file empty | not a regular file
2 | ring --seconds 0 | seconds
2 | mapped --copy 2G | too much memory
2 | server --hot-files 5 --cold-files 40 --dir files | has 5 bytes: name another --dir
2 | server --dir files --slow-disk 1ms | cannot be used with
2 | server --size 2G | at most 1G
2 | server --contenders zzz | zzz; spawn-blocking
2 | server --hot 0 | 1..=1000
2 | object-store --contenders zzz | zzz; nowait, nowait-mapped, local
2 | tools --scale 2 | from 0.001 to 1
2 | tools --tables huge | fincore, tiny, warm, small
2 | tools --contenders zzz | zzz; nowait, vmtouch, fincore, cat
2 | tools --scale 0.002 --tables tiny --contenders cat | choose one of nowait, vmtouch, fincore
1 | tools --scale 0.002 --tables tiny --nowait nowhere | nowhere: No such file
1 | tools --scale 0.002 --tables tiny --nowait /bin/false --rounds 1 | /false failed (exit status: 1)
2 | report | --out
2 | report --out x --parts nothing | nothing
2 | report --out x --minutes -1 | 0 to 1440
1 | report --out /proc/x | name a directory
";

#[test]
fn what_makes_no_sense_is_refused_with_what_does() {
    let here = directory();
    fs::create_dir(here.path().join("empty")).unwrap();
    fs::create_dir(here.path().join("files")).unwrap();
    fs::write(here.path().join("files/cold-000000"), "short").unwrap();
    let files = [("tiny", 100), ("half", 64 << 10), ("mine", 1 << 20)];
    for (name, size) in
        files
            .into_iter()
            .chain([("small-0", 2_000), ("small-1", 2_000), ("small-2", 2_000)])
    {
        fs::write(here.path().join(name), vec![7; size]).unwrap();
    }
    let before = names(here.path()).len();
    for line in REFUSED.trim().lines() {
        let [code, words, parts] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let said = run(&mut bench(here.path(), words));
        assert_eq!(said.code, code.parse().ok(), "{line}: {said:?}");
        for part in parts.split("; ") {
            assert!(said.err.contains(part), "{part}: {line}: {said:?}");
        }
        assert_eq!(names(here.path()).len(), before, "{line}");
    }
    assert_eq!(mounts(here.path()), Vec::<String>::new());
    assert!(fs::read(here.path().join("mine")).unwrap() == vec![7; 1 << 20]);
}

/// Only root can drop caches and make disks. Messages tell other users what they can do.
#[test]
fn without_rights_it_says_what_to_do() {
    for (code, words, part) in [
        (2, "ahead --files 5", "--warm"),
        (2, "dir --files 5", "--warm"),
        (2, "keep-cache --files 5", "--slow-disk"),
        (1, "dir --slow-disk 1ms", "root"),
        (2, "tools --scale 0.002", "--tables fincore,tiny"),
        (
            1,
            "report --out /x",
            "name a directory that you may write to",
        ),
    ] {
        let (mut command, _copy) = unprivileged(words.split(' '));
        let said = run(&mut command);
        assert_eq!(said.code, Some(code), "{words}: {said:?}");
        assert!(said.err.contains(part), "{words}: {said:?}");
    }
}

/// Programs that are missing are left out, or the message names the package.
#[test]
fn an_empty_path() {
    each_area(|area| {
        let here = directory();
        let said = run(command(area, here.path(), "16M").env("PATH", "/nonexistent"));
        match name(area) {
            "aio" => failed(&said, area, 1, &["fio", "apt-get install fio"]),
            "ahead" => failed(&said, area, 1, &["du", "apt-get install coreutils"]),
            _ => assert_eq!(said.code, Some(0), "{}: {said:?}", area),
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
        ("iops --tables latency --contenders local,psync", 4),
        (
            "runtimes --size 32M --cells cached-4K-1 --peers nowait,pread",
            1,
        ),
    ] {
        for gone in [false, true] {
            // The sizes of the files must be known before they change.
            let waits = (0..6).map(|i| Duration::from_millis(400 << i));
            let mut ends = waits.map(|wait| changed(&format!("{words} {long}"), count, gone, wait));
            let said = ends.find(|said| said.err.contains("another program has"));
            let said = said.expect("the change is noticed");
            failed(&said, words, 1, &["no other program changes"]);
        }
    }
}

/// Truncates or removes the files of a bench after this time.
fn changed(words: &str, count: usize, gone: bool, wait: Duration) -> Said {
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
    let child = spawned(&mut bench(here.path(), &format!("{words} --file data")));
    thread::sleep(wait);
    for path in &paths {
        match gone {
            true => fs::remove_file(path).unwrap(),
            false => drop(File::create(path).unwrap()),
        }
    }
    Said::of(&child.wait_with_output().unwrap())
}

/// Ctrl-C of a terminal goes to the whole process group. It ends each area in each of its phases, with
/// exit code 130, and nothing is left.
#[test]
fn ctrl_c_in_every_phase() {
    require!(slowdisk::available());
    let long = [
        "aio --size 64M --seconds 5",
        "randread --size 2G --ops 10000 --rounds 1000",
        "cached --size 64M --seconds 0.2 --rounds 1000",
        "mix --size 64M --seconds 5",
        "hitrate --size 64M --ops 1000 --rounds 1000",
        "syscalls --rounds 1000",
        "race --size 64M --seconds 1 --rounds 1000",
        "ahead --slow-disk 1ms --files 500 --programs find --contenders direct --rounds 1000",
        "dir --warm --files 20k --rounds 1000",
        "dir --slow-disk 1ms --files 500 --rounds 1000",
        "iops --size 64M --seconds 0.1 --rounds 1000",
        "runtimes --file made --size 64M --seconds 5",
        "keep-cache --slow-disk 1ms --files 500 --large 8M --programs tar --contenders direct --rounds 1000",
        "ring --size 64M --seconds 0.1 --rounds 1000",
        "tools --scale 0.01 --rounds 1000",
        "server --cold-files 200 --contenders tokio-fs --rounds 1000",
        "object-store --size 64M --works warm-4K-1 --rounds 1000",
    ];
    for milliseconds in [5, 120, 1200] {
        for words in long.chunks(6) {
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

    // The directory for temporary files is inside: mounts and devices are found by it.
    let here = directory();
    let mut command = bench(here.path(), words);
    command.arg("--json").process_group(0);
    let child = spawned(&mut command);
    let group = Pid::from_child(&child);
    // Before it has caught the signal, a program ends by it.
    until("it catches SIGINT", || catches_int(group));
    thread::sleep(Duration::from_millis(milliseconds));
    kill_process_group(group, Signal::INT).unwrap();
    let said = Said::of(&child.wait_with_output().unwrap());
    let at = format!("{words} after {milliseconds} ms");
    assert_eq!(said.code, Some(130), "{at}: {said:?}");
    if said.out.is_empty() {
        assert_eq!(
            said.err, "nowait-bench: interrupted before anything was done\n",
            "{at}"
        );
    } else {
        assert_eq!(
            (said.err.as_str(), &said.json()["interrupted"]),
            ("", &true.into()),
            "{at}"
        );
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
