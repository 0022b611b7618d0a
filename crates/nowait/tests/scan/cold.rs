//! Scanning a directory on a slow device returns all names with metadata, in every order. On xfs the first
//! entry of each batch is asked about before the others.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use nowait::scan::{Order, Scan};
use slowdisk::{Filesystem, SlowDisk, TestMount};

use crate::directories::{assert_same, engines, fill, listed, scanned, with_metadata};

const FILES: usize = 3_000;

fn slow(filesystem: Filesystem) -> TestMount {
    let latency = Duration::from_millis(1);
    let disk = SlowDisk::builder().size(1 << 30).latency(latency).queue(64);
    TestMount::filled(&disk.build().unwrap(), filesystem, |at| {
        fill(&at.join("d"), "file-", FILES);
    })
    .unwrap()
}

fn comes_whole(filesystem: Filesystem) {
    slowdisk::require!(slowdisk::available());
    slowdisk::require!(filesystem.available());
    let cold = slow(filesystem);
    let path = cold.path().join("d");
    let expected = listed(&path);
    for engine in engines() {
        for order in [Order::Unordered, Order::Inode, Order::Name] {
            // The window is small: it fills while batches are still being asked about.
            for window in [65_536, 700] {
                cold.remount().unwrap();
                let options = with_metadata().order(order).max_buffered(window, 32 << 20);
                let mut scan = options.engine(&engine).blocking_open(&path).unwrap();
                let what = format!("{filesystem}, {order:?}, a window of {window}");
                let mut seen = BTreeMap::new();
                for entry in scan.by_ref() {
                    let entry = entry.unwrap();
                    let stat = entry.metadata().unwrap().unwrap();
                    assert_eq!(stat.ino(), expected[entry.file_name()], "{what}");
                    assert!(
                        seen.insert(entry.file_name().to_owned(), entry.ino())
                            .is_none()
                    );
                }
                assert_same(&seen, &expected, &what);
                let stats = scan.stats();
                assert_eq!((stats.done, stats.failed), (FILES as u64, 0), "{what}");
                assert!(stats.waited > 0, "{what}: not cold");
            }
        }
    }
}

#[test]
fn on_ext4() {
    comes_whole(Filesystem::Ext4);
}

#[test]
fn on_xfs() {
    comes_whole(Filesystem::Xfs);
}

#[test]
fn on_btrfs() {
    comes_whole(Filesystem::Btrfs);
}

/// A cancelled scan also gives up batches of which only the first entry was asked about.
#[test]
fn a_scan_that_is_dropped_midway_leaves_the_next_one_whole() {
    slowdisk::require!(slowdisk::available());
    slowdisk::require!(Filesystem::Xfs.available());
    let cold = slow(Filesystem::Xfs);
    let path = cold.path().join("d");
    let expected = listed(&path);
    for engine in engines() {
        for batches in [0, 1, 20] {
            cold.remount().unwrap();
            let options = with_metadata().engine(&engine);
            let mut scan: Scan = options.blocking_open(&path).unwrap();
            for _ in 0..batches {
                scan.blocking_batch().unwrap().unwrap();
            }
            drop(scan);
            let seen = scanned(options.blocking_open(&path).unwrap());
            assert_same(&seen, &expected, &format!("after {batches} batches"));
        }
    }
}
