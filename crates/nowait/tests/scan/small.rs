//! A small cached directory costs no thread and no handoff. The window bounds the memory of a scan.

use std::path::Path;
use std::time::Duration;

use nowait::scan::{DirEntry, Options, Order, Scan};
use slowdisk::{Filesystem, TestMount};
use test_support::{Excuse, repeat};

use crate::common::by_workers::found;
use crate::common::children::{alone, in_child, role};
use crate::common::files::scratch;
use crate::common::open_paths::open_below;
use crate::common::wait::wait_until;
use crate::directories::{
    engines, fill, listed, scanned_by_workers, threads, with_metadata, workers,
};

const ATTEMPTS: usize = 60;

/// Scans a directory of ten files. Returns true if no worker has helped.
fn scan_is_alone(dir: &Path, attempt: usize) -> bool {
    let order = [Order::Unordered, Order::Inode, Order::Name][attempt % 3];
    let scan = with_metadata().order(order).blocking_open(dir);
    let mut scan = scan.unwrap();
    let mut entries = 0;
    while let Some(batch) = scan.blocking_batch() {
        entries += batch.unwrap().len();
    }
    assert_eq!(entries, 10);
    let stats = scan.stats();
    assert!(stats.by_workers > 0 || stats.by_caller <= 6, "{stats:?}");
    stats.by_workers == 0
}

/// In a child: it counts the threads of the process.
#[test]
fn ten_cached_entries_start_no_thread() {
    alone(|| {
        let dir = scratch();
        fill(dir.path(), "f", 10);
        listed(dir.path());
        // A caller that was preempted looks like one that waited for the device, and starts a worker.
        for attempt in 0..ATTEMPTS {
            repeat("a scan", &[Excuse::Preempted], || {
                wait_until("the workers end", || workers() == 0);
                // The threads of the engine stay, if a worker was started before.
                let before = threads();
                let is_alone = scan_is_alone(dir.path(), attempt);
                match threads() {
                    after if is_alone && after == before => Ok(()),
                    after => Err((is_alone, before, after)),
                }
            });
        }
    });
}

#[test]
fn a_scan_that_is_over_or_dropped_leaves_nothing_open() {
    let dir = scratch();
    fill(dir.path(), "f", 20_000);
    for engine in engines() {
        let mut scan = with_metadata()
            .engine(&engine)
            .blocking_open(dir.path())
            .unwrap();
        let batches: Vec<_> = std::iter::from_fn(|| scan.blocking_batch())
            .map(Result::unwrap)
            .collect();
        assert!(scan.stats().parts > 1 && batches.len() > 1);
        // The scan and its entries still exist.
        wait_until("descriptors stay open", || {
            open_below(dir.path()).is_empty()
        });

        // The scan cannot end before its entries are taken.
        let mut scan = with_metadata()
            .max_buffered(1000, 1 << 20)
            .engine(&engine)
            .blocking_open(dir.path())
            .unwrap();
        scan.blocking_batch().unwrap().unwrap();
        assert!(!open_below(dir.path()).is_empty());
        drop(scan);
        wait_until("descriptors stay open", || {
            open_below(dir.path()).is_empty()
        });

        let scan = with_metadata()
            .engine(&engine)
            .blocking_open(dir.path())
            .unwrap();
        scan.cancel();
        wait_until("descriptors stay open", || {
            open_below(dir.path()).is_empty()
        });
    }
}

#[test]
fn workers_end_after_a_scan() {
    alone(|| {
        let dir = scratch();
        fill(dir.path(), "f", 5_000);
        let before = threads();
        for engine in engines() {
            let scan = with_metadata()
                .engine(&engine)
                .blocking_open(dir.path())
                .unwrap();
            assert_eq!(scanned_by_workers(scan).len(), 5_000);
            assert!(threads() > before);
        }
        wait_until("threads stay", || threads() == before);
    });
}

/// The maximum of entries that are listed and not handed out, while none is taken.
fn held(scan: &Scan, handed: u64) -> u64 {
    let mut before = scan.stats();
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let now = scan.stats();
        if now == before {
            return now.listed - handed;
        }
        before = now;
    }
}

#[test]
fn a_window_bounds_what_is_held() {
    let dir = scratch();
    fill(dir.path(), "f", 30_000);
    for engine in engines() {
        for order in [Order::Unordered, Order::Inode] {
            // Windows in entries, in bytes (an entry with metadata takes some 300), and below one call.
            for (entries, bytes, most) in [
                (2_000, 1 << 30, 2_000),
                (1 << 30, 600_000, 2_200),
                (1, 1, 30),
            ] {
                let options = with_metadata().engine(&engine).order(order);
                let mut scan = options
                    .max_buffered(entries, bytes)
                    .blocking_open(dir.path())
                    .unwrap();
                let (mut handed, mut rounds) = (0, 0);
                let mut names = std::collections::HashSet::new();
                while let Some(batch) = pollster::block_on(scan.batch()) {
                    let batch = batch.unwrap();
                    handed += batch.len() as u64;
                    names.extend(batch.iter().map(|e| e.file_name().to_owned()));
                    rounds += 1;
                    if rounds < 10 {
                        let held = held(&scan, handed);
                        assert!(
                            held <= most,
                            "{held} for a window of {entries}, {bytes}, {order:?}"
                        );
                        assert!(held > 0 || scan.stats().listed == 30_000 || entries == 1);
                    }
                    assert!(scan.stats().listed - handed <= most);
                }
                assert_eq!(names.len(), 30_000);
            }
        }
    }
}

#[test]
fn orders_are_kept() {
    let dir = scratch();
    // Names whose order is neither that of their inodes nor that of their hashes.
    let names: Vec<String> = (0..20_000u64)
        .map(|i| format!("{:x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    for name in &names {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    for engine in engines() {
        for caller in [true, false] {
            let options = with_metadata().engine(&engine);
            let seen = |options: Options| -> Vec<DirEntry> {
                let mut scan = options.blocking_open(dir.path()).unwrap();
                found(&mut scan, caller).map(Result::unwrap).collect()
            };
            let seen_inos = |window: usize| -> Vec<u64> {
                let options = options
                    .clone()
                    .order(Order::Inode)
                    .max_buffered(window, 1 << 30);
                seen(options).iter().map(DirEntry::ino).collect()
            };
            let seen = seen(options.clone().order(Order::Name));
            assert!(seen.is_sorted_by_key(|entry| entry.file_name().to_owned()));
            assert_eq!(seen.len(), names.len());

            let seen = seen_inos(1 << 20);
            assert!(
                seen.is_sorted() && seen.len() == names.len(),
                "one window holds all"
            );

            let seen = seen_inos(5_000);
            let runs = 1 + seen.windows(2).filter(|pair| pair[0] > pair[1]).count();
            assert_eq!(seen.len(), names.len());
            assert!((4..=60).contains(&runs), "{runs} runs of inode numbers");
        }
    }
}

/// 1,000,000 entries in default order: resident memory never exceeds 64 MiB. On tmpfs, where so many
/// names are made in seconds.
#[test]
fn a_million_entries_take_64_mib() {
    memory_of(Filesystem::Tmpfs, 1_000_000, 64);
}

/// The same for a directory that is listed in parts and sorted in runs.
#[test]
fn a_directory_in_parts_takes_32_mib() {
    memory_of(Filesystem::Ext4, 200_000, 32);
}

fn memory_of(filesystem: Filesystem, entries: usize, mib: usize) {
    if let Some(dir) = role() {
        return assert_memory(&dir, entries, mib << 10);
    }
    slowdisk::require!(filesystem.available());
    // Names are kept in the kernel's memory.
    slowdisk::require!(has_memory(entries / 500));
    let mut builder = TestMount::builder(filesystem);
    if filesystem == Filesystem::Tmpfs {
        builder = builder.option("nr_inodes=0");
    }
    let mount = builder.build().unwrap();
    let name = |i: usize| mount.path().join(format!("a name of ordinary length {i}"));
    // Links to one file are made faster than files; ext4 allows 65,000.
    for first in (0..entries).step_by(50_000) {
        std::fs::write(name(first), "").unwrap();
        for i in first + 1..first + 50_000 {
            std::fs::hard_link(name(first), name(i)).unwrap();
        }
    }
    in_child(mount.path().to_str().unwrap());
}

/// Returns an error if less memory is free.
fn has_memory(mib: usize) -> Result<(), String> {
    let free = kib_of("/proc/meminfo", "MemAvailable") >> 10;
    if free >= mib {
        return Ok(());
    }
    Err(format!("{mib} MiB of memory are wanted, {free} are free"))
}

/// Checks the memory of a scan whose workers had time to run ahead.
fn assert_memory(dir: &str, entries: usize, most: usize) {
    let mut scan = with_metadata().blocking_open(dir).unwrap();
    let mut handed = pollster::block_on(scan.batch()).unwrap().unwrap().len();
    held(&scan, handed as u64);
    handed += scan.map(Result::unwrap).count();
    assert!(
        (entries..=entries + 1).contains(&handed),
        "{handed}, lost+found included"
    );
    let peak = kib_of("/proc/self/status", "VmHWM");
    assert!(peak <= most, "{peak} KiB");
}

/// A number from a file of /proc.
fn kib_of(file: &str, what: &str) -> usize {
    let said = std::fs::read_to_string(file).unwrap();
    let line = said.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
