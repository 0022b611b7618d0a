//! A readahead brings the inodes of a directory into the caches, in the background.

use nowait::scan::{Options, readahead};
use slowdisk::{Filesystem, SlowDisk, TestMount};

use crate::common::files::scratch;
use crate::common::limit::Limit;
use crate::common::open_paths::open_below;
use crate::common::wait::wait_until;
use crate::directories::{engines, fill};

#[test]
fn what_was_read_ahead_is_not_asked_of_the_device_again() {
    slowdisk::require!(slowdisk::available());
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
        slowdisk::require!(filesystem.available());
        let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
        let cold =
            TestMount::filled(&disk, filesystem, |at| fill(&at.join("d"), "f", 5_000)).unwrap();
        let dir = cold.path().join("d");
        for engine in engines() {
            let _limit = Limit::new(format!("{filesystem} {}", engine.backend()));
            cold.remount().unwrap();
            let before = disk.counters().reads;
            let ahead = readahead(&dir, &Options::new().engine(&engine)).unwrap();
            ahead.blocking_wait();
            let between = disk.counters().reads;
            assert!(between > before + 20, "{filesystem}: nothing was cold");
            assert!(ahead.is_over());
            assert_eq!((ahead.stats().listed, ahead.stats().done), (5_000, 5_000));
            for entry in std::fs::read_dir(&dir).unwrap() {
                entry.unwrap().metadata().unwrap();
            }
            let after = disk.counters().reads;
            assert!(
                after <= between + 2,
                "{filesystem}: {} reads afterwards",
                after - between
            );
        }
    }
}

#[test]
fn it_goes_no_further_than_its_limit() {
    let dir = scratch();
    fill(dir.path(), "f", 5_000);
    for engine in engines() {
        for n in [0, 1, 777, 4_000, 10_000] {
            let limits = Options::new().max_entries(n).workers(3).engine(&engine);
            let ahead = readahead(dir.path(), &limits).unwrap();
            ahead.blocking_wait();
            assert_eq!(ahead.stats().done, n.min(5_000));
            assert!(ahead.stats().workers <= 3);
        }
    }
}

#[test]
fn it_goes_on_when_its_handle_is_dropped() {
    let dir = scratch();
    fill(dir.path(), "f", 5_000);
    let engine = &engines()[0];
    let ahead = readahead(dir.path(), &Options::new().engine(engine)).unwrap();
    let watched = ahead.clone();
    drop(ahead);
    wait_until("it has ended", || watched.is_over());
    assert_eq!(watched.stats().done, 5_000);
    wait_until("descriptors stay open", || {
        open_below(dir.path()).is_empty()
    });
}

#[test]
fn it_takes_a_fraction_of_the_wait_of_asking_one_by_one() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).queue(64).build().unwrap();
    let cold =
        TestMount::filled(&disk, Filesystem::Xfs, |at| fill(&at.join("d"), "f", 5_000)).unwrap();
    let dir = cold.path().join("d");
    cold.remount().unwrap();
    disk.set_latency(std::time::Duration::from_millis(2));
    readahead(&dir, &Options::new()).unwrap().blocking_wait();
    // Checks the queue instead of a time: many requests are in the queue of the device at once.
    assert!(disk.counters().deepest >= 8, "{}", disk.counters().deepest);
}
