//! Threads borrow, load and read while another process truncates the file and writes it again.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nowait::mapping::Budget;
use nowait::{File, Mapping};
use slowdisk::{Filesystem, TestMount};

use crate::common::limit::Limit;
use crate::common::mounts::{ON_DISK, mounted};
use crate::{WINDOW, budget, mapped};

const WINDOWS: u64 = 6;

/// Another process replaces the file's bytes by `byte`: it truncates the file first.
fn fill(path: &std::path::Path, byte: u8) {
    let script = format!(
        "head -c {} /dev/zero | tr '\\0' '\\{byte:o}' > {}",
        WINDOWS * WINDOW,
        path.display()
    );
    assert!(
        Command::new("sh")
            .args(["-c", &script])
            .status()
            .unwrap()
            .success()
    );
}

/// All bytes are alike, because the file is mapped only while it is not written.
fn check(bytes: &[u8]) {
    let first = bytes[0];
    assert!(first != 0 && bytes.iter().all(|byte| *byte == first));
    std::thread::yield_now();
    assert!(
        bytes.iter().all(|byte| *byte == first),
        "borrowed bytes have changed"
    );
}

/// Borrows until the lease is broken, or the writer has ended: it does not break a lease that is taken later.
fn borrow(mapping: &Mapping, thread: u64, borrowed: &AtomicU64, ended: &AtomicBool) {
    let mut at = thread;
    while mapping.why().is_none() && !ended.load(Ordering::Relaxed) {
        at = at
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let start = (at >> 33) % (WINDOWS * WINDOW - 5000);
        let range = start..start + 5000;
        match mapping.get(range.clone()) {
            Some(bytes) => {
                check(&bytes);
                borrowed.fetch_add(1, Ordering::Relaxed);
            }
            None if at & 1 << 40 == 0 => {
                if let Ok(bytes) = mapping.blocking_load(range) {
                    check(&bytes);
                }
            }
            None => mapping.prefetch(range),
        }
        if let Some(bytes) = mapping.get_send(start..start + 10) {
            std::thread::scope(|s| s.spawn(|| check(&bytes)).join().unwrap());
        }
    }
}

fn race(mount: &TestMount, budget: &Budget) {
    let path = mount.path().join("file");
    fill(&path, 1);
    let (ended, borrowed) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        s.spawn(|| {
            for round in 2..30 {
                fill(&path, round);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            ended.store(true, Ordering::Relaxed);
        });
        while !ended.load(Ordering::Relaxed) {
            let file = File::blocking_open(&path).unwrap();
            let mapping = Mapping::within(&file, budget).unwrap();
            if mapping.len() < WINDOWS * WINDOW || mapping.why().is_some() {
                continue;
            }
            std::thread::scope(|s| {
                for thread in 0..3 {
                    let (mapping, borrowed, ended) = (&mapping, &borrowed, &ended);
                    s.spawn(move || borrow(mapping, thread, borrowed, ended));
                }
            });
        }
    });
    assert!(borrowed.load(Ordering::Relaxed) > 0);
}

#[test]
fn the_file_is_truncated_and_written_by_another_process() {
    for filesystem in ON_DISK.into_iter().chain([Filesystem::Tmpfs]) {
        let _limit = Limit::new(format!("{filesystem:?}"));
        let mount = mounted!(filesystem);
        // With room for the windows of three threads, and without.
        race(&mount, &budget(2));
        race(&mount, &budget(WINDOWS));
    }
}

#[test]
fn a_file_that_does_not_change_is_read_while_windows_are_evicted() {
    let _limit = Limit::new("two windows".into());
    let mount = mounted!(Filesystem::Tmpfs);
    let path = mount.path().join("file");
    let bytes: Vec<u8> = (0..WINDOWS * WINDOW)
        .map(|at| (at / 5000) as u8 + 1)
        .collect();
    std::fs::write(&path, &bytes).unwrap();
    let file = File::blocking_open(&path).unwrap();
    let budget = budget(2);
    let mapping = mapped(&file, &budget);
    std::thread::scope(|s| {
        for thread in 0..4u64 {
            let (mapping, bytes) = (&mapping, &bytes);
            s.spawn(move || {
                for i in 0..20_000u64 {
                    let at = (i * 7919 + thread * 104_729) % (WINDOWS * WINDOW - 100);
                    let expected = &bytes[at as usize..at as usize + 100];
                    match mapping.get(at..at + 100) {
                        Some(got) => assert!(*got == *expected),
                        None if i % 8 == thread => drop(mapping.blocking_load(at..at + 100)),
                        None => {}
                    }
                }
            });
        }
    });
    assert!(mapping.stats().evicted > 10, "{:?}", mapping.stats());
}
