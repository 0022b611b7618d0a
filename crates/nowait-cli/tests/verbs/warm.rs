//! Tests of `nowait warm`: the cached pages afterwards, the limits, and the output.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::program::{
    Group, MIB, PAGE, Said, as_nobody, cached, cached_bytes, cold, directory, drawn_until, evict,
    fifo, nowait, open_directory, percentages, run, touch, wait_until, word,
};
use nowait::residency::page_map;
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};
use test_support::repeat::unless_reclaimed;

/// The available backends.
const BACKENDS: [Option<&str>; 2] = [None, Some("threads")];

fn warm(words: &[&str]) -> Said {
    let words: Vec<&str> = ["warm", "--json"].iter().chain(words).copied().collect();
    run(&mut nowait(words))
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn only_missing_pages_are_read() {
    unless_reclaimed(|| {
        let dir = directory();
        let file = cold(dir.path().join("file"), 4 * MIB + 100);
        touch(&file, MIB..2 * MIB);
        touch(&file, 3 * MIB..3 * MIB + 4096);
        let said = warm(&[word(&file)]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let report = said.json();
        assert_eq!(report["cached_before"], MIB + 4096);
        assert_eq!(report["read_bytes"], 3 * MIB + 100 - 4096);
        assert_eq!(report["cached_after"], 4 * MIB + 100);
        assert_eq!(cached(&file), [(0, 4 * MIB + 100)]);
        let again = warm(&[word(&file)]).json();
        assert_eq!(again["read_bytes"], 0);
    });
}

#[test]
fn a_tree_is_cached_afterwards_on_every_filesystem_and_backend() {
    unless_reclaimed(|| {
        let all = [
            Filesystem::Ext4,
            Filesystem::Xfs,
            Filesystem::Btrfs,
            Filesystem::Tmpfs,
            Filesystem::Overlay,
        ];
        for filesystem in all {
            slowdisk::require!(filesystem.available());
            let mount = TestMount::new(filesystem).unwrap();
            let made = mount.lower().unwrap_or(mount.path()).join("tree");
            let mut names = Vec::new();
            for (at, size) in [0, 1, 4096, 70_000, 300_000, 3 * MIB]
                .into_iter()
                .enumerate()
            {
                let below = made.join(format!("d{}", at % 2));
                fs::create_dir_all(&below).unwrap();
                let name = format!("d{}/f\n{at}", at % 2);
                fs::write(made.join(&name), vec![7; size as usize]).unwrap();
                names.push((name, size));
            }
            mount.sync().unwrap();
            let tree = mount.path().join("tree");
            for backend in BACKENDS {
                for (name, _) in &names {
                    let file = File::open(made.join(name)).unwrap();
                    slowdisk::evict(&file).unwrap();
                }
                let mut command = nowait(["warm", "--json", "-r", word(&tree)]);
                command.envs(backend.map(|name| ("NOWAIT_BACKEND", name)));
                let said = run(&mut command);
                assert_eq!(said.code, Some(0), "{filesystem:?} {backend:?}: {said:?}");
                let report = said.json();
                let total: u64 = names.iter().map(|(_, size)| size).sum();
                assert_eq!(report["files"], names.len(), "{filesystem:?}: {said:?}");
                assert_eq!(report["cached_after"], total, "{filesystem:?}: {said:?}");
                for (name, size) in &names {
                    let there = cached_bytes(&tree.join(name));
                    assert_eq!(there, *size, "{filesystem:?} {backend:?} {name:?}");
                }
            }
        }
    });
}

#[test]
fn holes_are_not_read() {
    let dir = directory();
    let path = dir.path().join("sparse");
    let file = File::create(&path).unwrap();
    file.set_len(2 << 40).unwrap();
    file.write_all_at(&vec![1; MIB as usize], 1 << 40).unwrap();
    file.sync_all().unwrap();
    drop(file);
    evict(&path);
    let said = warm(&[word(&path)]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.json()["read_bytes"], MIB);
    assert_eq!(said.json()["hole_bytes"], (2u64 << 40) - MIB);
    assert_eq!(cached(&path), [(1 << 40, (1 << 40) + MIB)]);
}

#[test]
fn a_budget_is_kept_and_the_unread_bytes_are_reported() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 4 * MIB);
    for budget in [0, MIB] {
        evict(&file);
        let said = warm(&["--budget", &budget.to_string(), word(&file)]);
        assert_eq!(said.code, Some(1), "{said:?}");
        let report = said.json();
        assert_eq!(report["read_bytes"], budget);
        assert_eq!(report["not_read"]["files"], 1);
        assert_eq!(report["not_read"]["bytes"], 4 * MIB - budget);
        assert!(
            report["not_read"]["why"]
                .as_str()
                .unwrap()
                .contains("budget")
        );
        assert_eq!(cached_bytes(&file), budget);
    }
    evict(&file);
    let said = run(&mut nowait(["warm", "--budget", "0%", word(&file)]));
    assert!(said.text().contains("not read: 4M of 1 file"), "{said:?}");
    assert!(said.text().contains("--budget"), "{said:?}");
}

#[test]
fn readahead_counts_as_read_and_stays_within_the_budget() {
    const SIZE: u64 = 320 * MIB;
    let dir = directory();
    let file = dir.path().join("file");
    // The file has two windows. The second must be counted before the kernel reads it ahead.
    fs::write(&file, vec![7; SIZE as usize]).unwrap();
    evict(&file);
    let report = warm(&["--budget", "100%", word(&file)]).json();
    assert_eq!(report["cached_before"], 0);
    assert_eq!(report["read_bytes"], SIZE);
    evict(&file);
    let report = warm(&["--budget", "300M", word(&file)]).json();
    assert_eq!(report["read_bytes"], 300 * MIB);
    assert_eq!(cached_bytes(&file), 300 * MIB);
}

#[test]
fn the_limit_of_a_cgroup_is_never_filled() {
    let Some(group) = Group::new(128 * MIB) else {
        return slowdisk::skip_or_fail("a cgroup with a memory controller");
    };
    let dir = directory();
    let file = cold(dir.path().join("file"), 200 * MIB);
    for budget in ["75%", "1T"] {
        evict(&file);
        // A group may hold pages of the run before.
        let mut command = nowait(["warm", "--json", "--depth", "16", "--budget", budget]);
        let said = run(group.around(command.arg(&file)));
        assert_eq!(said.code, Some(1), "{said:?}");
        let report = said.json();
        let brought = report["read_bytes"].as_u64().unwrap();
        assert!(brought > 16 * MIB && brought < 128 * MIB, "{said:?}");
        assert_eq!(
            brought + report["not_read"]["bytes"].as_u64().unwrap(),
            200 * MIB
        );
        if budget == "75%" {
            // The bytes that were read are still cached, except for pages that the kernel evicts at any time.
            let map = page_map(File::open(&file).unwrap(), 0..u64::MAX).unwrap();
            let there = map.known().unwrap().cached() * PAGE;
            assert!(there > brought - brought / 16, "{there}: {said:?}");
        } else {
            let why = report["not_read"]["why"].as_str().unwrap();
            assert!(
                why.contains("available") || why.contains("evicted again"),
                "{said:?}"
            );
        }
    }
}

#[test]
fn sums_beyond_64_bits_stay_at_the_maximum() {
    let mount = mounted!(Filesystem::Tmpfs);
    for name in ["1", "2", "3"] {
        let file = File::create(mount.path().join(name)).unwrap();
        file.set_len(i64::MAX as u64).unwrap();
    }
    let said = warm(&[word(mount.path())]).done();
    assert_eq!(said.json()["hole_bytes"], u64::MAX);
    let said = run(&mut nowait(["warm", word(mount.path())])).done();
    assert!(said.text().contains("Infinity of holes"), "{said:?}");
}

#[test]
fn an_interrupted_run_prints_its_results() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 8 * MIB);
    for rate in ["1", "65536"] {
        evict(&file);
        let mut command = nowait(["warm", "--json", "--rate", rate, word(&file)]);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        wait_until("a page is cached", || !cached(&file).is_empty());
        signal(&child, rustix::process::Signal::INT);
        let said = Said::of(&child.wait_with_output().unwrap());
        assert_eq!(said.code, Some(130), "{said:?}");
        let report = said.json();
        assert_eq!(report["interrupted"], true);
        // The read of a piece may have begun and not ended. Its pages count as cached.
        let (read, cached) = (report["read_bytes"].as_u64().unwrap(), cached_bytes(&file));
        assert!((read..=read + 8192).contains(&cached), "{cached}: {said:?}");
        assert!(cached_bytes(&file) < 8 * MIB);
    }
}

#[test]
fn an_interrupted_run_counts_only_the_examined_part_of_a_file() {
    let dir = directory();
    let path = dir.path().join("file");
    let file = File::create(&path).unwrap();
    // Allocated but unwritten space is read like data, and takes no time to create.
    let all = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&file, all, 0, 300 * MIB).unwrap();
    let mut command = nowait(["warm", "--rate", "65536", word(&path)]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    wait_until("a page is cached", || !cached(&path).is_empty());
    signal(&child, rustix::process::Signal::INT);
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    let begin = "1 file, of which 256M were examined; 0 were cached before\n";
    assert!(said.text().starts_with(begin), "{said:?}");
    assert!(
        said.text()
            .ends_with("interrupted: the rest was not processed\n"),
        "{said:?}"
    );
}

#[test]
fn an_interrupt_is_handled_while_a_device_hangs() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(512 << 20).build().unwrap();
    let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
    let file = cold(mount.path().join("file"), MIB);
    let places = slowdisk::extents(&File::open(&file).unwrap()).unwrap();
    for place in places {
        disk.inject(Fault::stall(place).reads_only());
    }
    let child = nowait(["warm", word(&file)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("a read hangs", || disk.stalled() > 0);
    signal(&child, rustix::process::Signal::INT);
    // The process ends when its reads are done. It prints its results before that.
    std::thread::sleep(Duration::from_secs(3));
    disk.release_all();
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.text().contains("interrupted"), "{said:?}");
}

#[test]
fn unreadable_files_are_reported_and_the_others_are_read() {
    let dir = directory();
    let at = |name: &str| dir.path().join(name);
    let good = cold(at("good"), 100_000);
    let fifo = fifo(at("fifo"));
    let said = warm(&[word(&at("missing")), word(&fifo), "/dev/null", word(&good)]);
    assert_eq!(said.code, Some(1), "{said:?}");
    for part in ["missing: No such file", "is a FIFO", "is a device"] {
        assert!(said.err.contains(part), "{part}: {said:?}");
    }
    assert_eq!(cached_bytes(&good), 100_000);
}

#[test]
fn read_errors_are_reported_and_not_counted_as_cached() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(512 << 20).build().unwrap();
    let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
    let bad = cold(mount.path().join("bad"), MIB);
    let good = cold(mount.path().join("good"), MIB);
    let place = slowdisk::extents(&File::open(&bad).unwrap())
        .unwrap()
        .remove(0);
    disk.inject(Fault::eio(place).reads_only());
    let said = warm(&["-r", word(mount.path())]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("bad: read at byte"), "{said:?}");
    let report = said.json();
    assert_eq!(report["failed"], 1);
    assert_eq!(report["cached_after"], report["read_bytes"], "{said:?}");
    assert_eq!(cached_bytes(&good), MIB);
}

#[test]
fn files_of_unknown_residency_are_read_completely() {
    let dir = open_directory();
    let readable = cold(dir.path().join("readable"), 300_000);
    let secret = cold(dir.path().join("secret"), 1000);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("NOWAIT_TEST_ALL").is_none(), "needs root");
        eprintln!("skipped: needs root to become another user");
        return;
    }
    let (mut command, _copy) = as_nobody(["warm", "--json", "-r", word(dir.path())]);
    let said = run(&mut command);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("secret: Permission denied"), "{said:?}");
    let report = said.json();
    assert_eq!(report["unknown"][0]["files"], 1);
    let why = report["unknown"][0]["why"].as_str().unwrap();
    assert!(why.contains("own the file"), "{said:?}");
    assert_eq!(report["read_bytes"], 300_000);
    assert_eq!(
        report["cached_after"], 0,
        "never more than is known: {said:?}"
    );
    assert_eq!(cached_bytes(&readable), 300_000);
    assert_eq!(cached_bytes(&secret), 0);
}

#[test]
fn a_file_that_shrinks_or_is_removed_does_not_end_the_run() {
    let dir = directory();
    let first = cold(dir.path().join("first"), MIB);
    let last = cold(dir.path().join("last"), 20_000);
    let child = nowait(["warm", "--json", "--rate", "64K", word(&first), word(&last)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("a page is cached", || {
        !cached(&first).is_empty() || !cached(&last).is_empty()
    });
    File::options()
        .write(true)
        .open(&first)
        .unwrap()
        .set_len(5000)
        .unwrap();
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("first: the file shrank"), "{said:?}");
    assert_eq!(cached_bytes(&last), 20_000);
}

#[test]
fn the_run_does_not_wait_for_the_rate_after_the_last_read() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 4000);
    // The rate would allow the next read after more than an hour, but there is no next read.
    assert_eq!(warm(&["--rate", "1", word(&file)]).code, Some(0));
    assert_eq!(cached_bytes(&file), 4000);
}

#[test]
fn a_file_with_two_names_is_read_once() {
    let dir = directory();
    let file = cold(dir.path().join("one"), MIB);
    fs::hard_link(&file, dir.path().join("two")).unwrap();
    let said = warm(&["-r", word(dir.path())]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.json()["read_bytes"], MIB);
    assert_eq!(said.json()["other_names"], 1);
    let said = run(&mut nowait(["warm", "-r", word(dir.path())]));
    assert!(said.text().contains("1 file (1 more name), 1M"), "{said:?}");
}

#[test]
fn access_times_are_unchanged() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 10_000);
    let old = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec {
            tv_sec: 1000,
            tv_nsec: 0,
        },
        last_modification: rustix::fs::Timespec {
            tv_sec: 2000,
            tv_nsec: 0,
        },
    };
    rustix::fs::utimensat(rustix::fs::CWD, &file, &old, rustix::fs::AtFlags::empty()).unwrap();
    assert_eq!(warm(&[word(&file)]).json()["read_bytes"], 10_000);
    assert_eq!(fs::metadata(&file).unwrap().atime(), 1000);
}

#[test]
fn a_dry_run_reads_nothing() {
    let dir = directory();
    let file = cold(dir.path().join("file"), MIB);
    let said = warm(&["--dry-run", "--rate", "1", "--budget", "300K", word(&file)]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(
        said.json()["read_bytes"].as_u64().unwrap()
            + said.json()["not_read"]["bytes"].as_u64().unwrap(),
        MIB
    );
    assert_eq!(cached(&file), []);
}

/// Checks what a run of these arguments draws about a total of 4 MiB.
fn draws_a_percentage(words: &[&str]) {
    let is_enough = |said: &str| {
        let mut percentages = percentages(said);
        percentages.dedup();
        percentages.len() > 2 && said.contains(" left")
    };
    let said = drawn_until(&mut nowait(words), is_enough);
    let percentages = percentages(&said);
    assert!(is_enough(&said), "{said}");
    assert!(percentages.is_sorted(), "{said}");
    assert!(
        percentages.last().is_some_and(|&last| last <= 100),
        "{said}"
    );
    assert!(said.contains("/4M "), "{said}");
    assert!(said.contains(" seconds left"), "{said}");
    assert!(said.contains("[=") || said.contains("[>"), "{said}");
}

#[test]
fn a_percentage_and_the_time_left_are_drawn_for_a_file() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 4 * MIB);
    draws_a_percentage(&["warm", "--rate", "128K", word(&file)]);
}

#[test]
fn a_percentage_is_drawn_for_a_tree_and_a_file_in_it() {
    let dir = directory();
    let tree = dir.path().join("tree");
    for at in 0..64 {
        let below = tree.join(format!("{}", at % 8));
        fs::create_dir_all(&below).unwrap();
        cold(below.join(format!("file{at}")), MIB / 16);
    }
    let first = tree.join("0/file0");
    fs::hard_link(&first, tree.join("other name")).unwrap();
    std::os::unix::fs::symlink(&first, tree.join("link")).unwrap();
    let words = ["warm", "--rate", "128K", word(&tree), word(&first)];
    draws_a_percentage(&words);
}

#[test]
fn no_percentage_is_drawn_for_a_list_of_paths() {
    let dir = directory();
    let file = cold(dir.path().join("file"), 4 * MIB);
    let list = dir.path().join("list");
    fs::write(&list, word(&file)).unwrap();
    let mut command = nowait(["warm", "--rate", "128K", "--files0-from", word(&list)]);
    let is_enough = |said: &str| said.matches("0 files, ").count() > 2;
    let said = drawn_until(&mut command, is_enough);
    assert!(is_enough(&said) && !said.contains('%'), "{said}");
}

#[test]
fn paths_are_read_from_a_nul_separated_list() {
    let dir = directory();
    let one = cold(dir.path().join("one\nname"), 5000);
    let two = cold(dir.path().join("two"), 5000);
    let list = dir.path().join("list");
    fs::write(&list, format!("{}\0{}\0", word(&one), word(&two))).unwrap();
    let said = warm(&["--files0-from", word(&list)]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(cached_bytes(&one) + cached_bytes(&two), 10_000);
}

#[test]
fn invalid_arguments_are_usage_errors() {
    for words in [
        &["--rate", "0", "x"][..],
        &["--budget", "101%", "x"],
        &["--budget", "lots", "x"],
        &["--depth", "0", "x"],
        &["--depth", "100000", "x"],
        &[],
    ] {
        let said = warm(words);
        assert_eq!(said.code, Some(2), "{words:?}: {said:?}");
    }
}
