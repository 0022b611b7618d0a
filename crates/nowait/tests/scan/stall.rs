//! A device that does not answer delays the workers, but not a caller that has cancelled.

use std::task::{Context, Poll, Waker};
use std::time::Instant;

use nowait::ErrorKind;
use nowait::engine::Engine;
use nowait::scan::{Options, Scan, readahead};
use slowdisk::{Fault, FaultId, Filesystem, SlowDisk, TestMount};

use crate::common::files::{patterned, scratch};
use crate::common::limit::Limit;
use crate::common::open_paths::open_below;
use crate::common::wait::wait_until;
use crate::directories::{engines, fill, scanned_by_workers, with_metadata};

/// A cold directory on a disk that answers no read.
struct Stalled {
    disk: SlowDisk,
    cold: TestMount,
    fault: FaultId,
}

impl Stalled {
    fn new() -> Stalled {
        let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
        let cold = TestMount::filled(&disk, Filesystem::Ext4, |at| {
            fill(&at.join("d"), "f", 5_000)
        })
        .unwrap();
        // The path is cached, the content of the directory is not.
        std::fs::metadata(cold.path().join("d")).unwrap();
        let fault = disk.inject(Fault::stall(0..disk.size()).reads_only());
        Stalled { disk, cold, fault }
    }

    fn scan(&self, engine: &Engine) -> Scan {
        let options = with_metadata().engine(engine);
        options.blocking_open(self.cold.path().join("d")).unwrap()
    }

    fn until_a_request_waits(&self) {
        wait_until("no request reaches the device", || self.disk.stalled() > 0);
    }

    /// Ends the stall. The stalled threads must leave no descriptor open.
    fn release(self) {
        self.disk.release(self.fault);
        let path = self.cold.path().to_owned();
        wait_until("descriptors stay open", || open_below(&path).is_empty());
    }
}

fn assert_cancelled<T>(answer: Option<nowait::Result<T>>) {
    match answer {
        Some(Err(error)) => assert_eq!(error.kind(), ErrorKind::Cancelled),
        Some(Ok(_)) => panic!("a result after the cancellation"),
        None => panic!("an ordinary end after the cancellation"),
    }
}

#[test]
fn who_waits_for_a_stalled_device_is_back_when_the_scan_is_cancelled() {
    slowdisk::require!(slowdisk::available());
    for engine in engines() {
        let _limit = Limit::new(format!("{}", engine.backend()));
        let stalled = Stalled::new();
        let mut scan = stalled.scan(&engine);
        let canceller = scan.canceller();
        let waiting = std::thread::spawn(move || {
            let answer = pollster::block_on(scan.batch());
            let back = Instant::now();
            assert_cancelled(answer);
            assert!(scan.blocking_batch().is_none());
            back
        });
        stalled.until_a_request_waits();
        let asked = Instant::now();
        canceller.cancel();
        let back = waiting.join().unwrap();
        assert!(stalled.disk.stalled() > 0, "the device has answered");
        eprintln!("back after {:?}", back - asked);
        stalled.release();
    }
}

/// By default the caller begins the scan. It stops when the device has proved slow.
#[test]
fn a_caller_that_has_begun_by_itself_is_back_too() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let cold = TestMount::filled(&disk, Filesystem::Ext4, |at| {
        fill(&at.join("d"), "f", 20_000)
    })
    .unwrap();
    disk.set_latency(std::time::Duration::from_millis(2));
    let mut scan = with_metadata()
        .max_buffered(600, 1 << 20)
        .blocking_open(cold.path().join("d"))
        .unwrap();
    scan.blocking_batch().unwrap().unwrap();
    let fault = disk.inject(Fault::stall(0..disk.size()).reads_only());
    let canceller = scan.canceller();
    let waiting = std::thread::spawn(move || {
        while let Some(batch) = scan.blocking_batch() {
            match batch {
                Ok(_) => {}
                error => return assert_cancelled(Some(error)),
            }
        }
        panic!("an ordinary end");
    });
    wait_until("no request reaches the device", || disk.stalled() > 0);
    std::thread::sleep(std::time::Duration::from_millis(50));
    canceller.cancel();
    let _limit = Limit::new("joining".into());
    waiting.join().unwrap();
    assert!(disk.stalled() > 0);
    disk.release(fault);
}

#[test]
fn a_future_is_woken_by_the_cancellation() {
    slowdisk::require!(slowdisk::available());
    for engine in engines() {
        let _limit = Limit::new(format!("{}", engine.backend()));
        let stalled = Stalled::new();
        let mut scan = stalled.scan(&engine);
        let mut nothing = Context::from_waker(Waker::noop());
        assert!(matches!(scan.poll_batch(&mut nothing), Poll::Pending));
        stalled.until_a_request_waits();
        let canceller = scan.canceller();
        let cancelling = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            canceller.cancel();
        });
        assert_cancelled(pollster::block_on(scan.batch()));
        assert!(pollster::block_on(scan.batch()).is_none());
        cancelling.join().unwrap();
        // The scan still exists, and holds no descriptor.
        stalled.release();
        drop(scan);
    }
}

#[test]
fn a_dropped_scan_does_not_wait() {
    slowdisk::require!(slowdisk::available());
    for engine in engines() {
        let _limit = Limit::new(format!("{}", engine.backend()));
        let stalled = Stalled::new();
        let scan = stalled.scan(&engine);
        let mut nothing = Context::from_waker(Waker::noop());
        let mut scan = scan;
        assert!(scan.poll_batch(&mut nothing).is_pending());
        stalled.until_a_request_waits();
        drop(scan);
        assert!(stalled.disk.stalled() > 0);
        stalled.release();
    }
}

#[test]
fn a_readahead_is_cancelled_while_the_device_stalls() {
    slowdisk::require!(slowdisk::available());
    for engine in engines() {
        let _limit = Limit::new(format!("{}", engine.backend()));
        let stalled = Stalled::new();
        let limits = Options::new().engine(&engine);
        let ahead = readahead(stalled.cold.path().join("d"), &limits).unwrap();
        stalled.until_a_request_waits();
        assert!(!ahead.is_over());
        ahead.cancel();
        assert!(ahead.is_over());
        ahead.blocking_wait();
        assert!(stalled.disk.stalled() > 0);
        drop(ahead);
        stalled.release();
    }
}

#[test]
fn a_scan_that_is_held_leaves_workers_to_others() {
    slowdisk::require!(slowdisk::available());
    let engine = Engine::options()
        .backend(nowait::engine::Backend::Threads)
        .workers(8)
        .build()
        .unwrap();
    let _limit = Limit::new("next to a stalled scan".into());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let cold = TestMount::filled(&disk, Filesystem::Ext4, |at| {
        fill(&at.join("d"), "f", 20_000)
    })
    .unwrap();
    let dir = cold.path().join("d");
    // Names are cached, inodes are not: every worker that asks for metadata waits.
    let bad = cold.inode(dir.join("f9999")).unwrap();
    cold.remount().unwrap();
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 20_000);
    let fault = disk
        .inject(Fault::stall(bad.start.saturating_sub(8 << 20)..bad.end + (8 << 20)).reads_only());
    let mut scan = with_metadata().engine(&engine).blocking_open(&dir).unwrap();
    let mut nothing = Context::from_waker(Waker::noop());
    while scan.poll_batch(&mut nothing).is_ready() {}
    wait_until("no request reaches the device", || disk.stalled() > 0);
    std::thread::sleep(std::time::Duration::from_millis(100));

    let elsewhere = scratch();
    let path = patterned(elsewhere.path(), "file", 10_000);
    let file = nowait::OpenOptions::new()
        .read(true)
        .engine(&engine)
        .blocking_open(path)
        .unwrap();
    let read = pollster::block_on(file.read_at(vec![0; 10_000], 0));
    assert_eq!(read.result.unwrap(), 10_000);
    let other = elsewhere.path().join("d");
    fill(&other, "f", 3_000);
    let scanned = scanned_by_workers(
        with_metadata()
            .engine(&engine)
            .blocking_open(other)
            .unwrap(),
    );
    assert_eq!(scanned.len(), 3_000);
    assert!(disk.stalled() > 0);
    drop(scan);
    disk.release(fault);
}
