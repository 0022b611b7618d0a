//! Scans while other threads create, unlink and rename. An entry that exists throughout is returned exactly
//! once, and no entry is returned twice.
//!
//! This takes five seconds for each filesystem. `NOWAIT_HAMMER_ROUNDS` sets a number of scans instead.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nowait::scan::Options;
use slowdisk::{Filesystem, TestMount};

use crate::common::by_workers::found;
use crate::directories::{fill, with_metadata};

const STANDING: usize = 10_000;

/// Creates, renames and unlinks names of its own until `stop` is set.
fn churn(dir: &Path, who: usize, over: &AtomicBool) {
    let mut round = 0usize;
    while !over.load(Relaxed) {
        let name = |kind: &str, i: usize| dir.join(format!("{kind}-{who}-{round}-{i}"));
        for i in 0..40 {
            fs::write(name("new", i), "").unwrap();
        }
        for i in 0..20 {
            fs::rename(name("new", i), name("renamed", i)).unwrap();
        }
        // To an existing name.
        fs::rename(name("new", 20), name("new", 21)).unwrap();
        for i in 0..20 {
            fs::remove_file(name("renamed", i)).unwrap();
        }
        for i in 21..40 {
            fs::remove_file(name("new", i)).unwrap();
        }
        round += 1;
    }
}

fn hammer(filesystem: Filesystem) {
    slowdisk::require!(filesystem.available());
    let mount = TestMount::builder(filesystem)
        .size(1 << 30)
        .build()
        .unwrap();
    let dir = mount.path().join("d");
    fill(&dir, "before", 2_000);
    fill(&dir, "standing", STANDING);
    // Gaps: new names lie between the permanent ones.
    for i in 0..2_000 {
        fs::remove_file(dir.join(format!("before{i}"))).unwrap();
    }
    let rounds = std::env::var("NOWAIT_HAMMER_ROUNDS")
        .ok()
        .map(|n| n.parse::<u64>().unwrap());
    let end = Instant::now() + Duration::from_secs(5);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for who in 0..2 {
            let (dir, over) = (&dir, &over);
            scope.spawn(move || churn(dir, who, over));
        }
        // Also if an assertion fails: else the other threads never end.
        let _stop = Stop(&over);
        let ways = [
            (Options::new(), false),
            (Options::new().workers(3), false),
            (with_metadata(), false),
            (with_metadata().max_buffered(1_000, 1 << 20), true),
        ];
        let mut round = 0;
        while rounds.map_or(Instant::now() < end, |rounds| round < rounds) {
            let (options, caller) = &ways[round as usize % ways.len()];
            let mut seen = HashSet::new();
            let mut standing = 0;
            for entry in found(&mut options.blocking_open(&dir).unwrap(), *caller) {
                let entry = entry.unwrap();
                let name = entry.file_name().to_owned();
                standing += usize::from(name.to_str().unwrap().starts_with("standing"));
                assert!(
                    seen.insert(name.clone()),
                    "{filesystem}, round {round}: {name:?} twice"
                );
            }
            assert_eq!(standing, STANDING, "{filesystem}, round {round}");
            round += 1;
        }
        eprintln!("{filesystem}: {round} scans");
        assert!(round >= 4);
    });
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn ext4() {
    hammer(Filesystem::Ext4);
}

#[test]
fn xfs() {
    hammer(Filesystem::Xfs);
}

#[test]
fn btrfs() {
    hammer(Filesystem::Btrfs);
}

#[test]
fn tmpfs() {
    hammer(Filesystem::Tmpfs);
}

#[test]
fn overlayfs() {
    hammer(Filesystem::Overlay);
}
