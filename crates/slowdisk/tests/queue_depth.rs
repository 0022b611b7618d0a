//! As many requests are in service at once as the disk has places, through a loop device as well.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use slowdisk::{Fault, Filesystem, LoopDevice, SlowDisk, TestMount, evict, require};

const LATENCY: Duration = Duration::from_millis(10);
const READS: u64 = 64;

/// 64 threads read one block each, spread so that no two are one request. The disk answers when all its places are taken.
fn read_at_once(disk: &SlowDisk, path: &Path) {
    let fault = disk.inject(Fault::stall(0..disk.size()).reads_only());
    thread::scope(|scope| {
        scope.spawn(|| read_concurrently(path));
        let end = Instant::now() + Duration::from_secs(300);
        while disk.stalled() < READS as usize {
            assert!(Instant::now() < end, "{} requests", disk.stalled());
            thread::sleep(Duration::from_millis(1));
        }
        disk.release(fault);
    });
    assert_eq!(disk.counters().deepest, READS as usize);
}

/// 64 threads read one block each. Returns how long all of them took.
fn read_concurrently(path: &Path) -> Duration {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        for n in 0..READS {
            let file = &file;
            scope.spawn(move || file.read_exact_at(&mut [0; 4096], n << 16).unwrap());
        }
    });
    start.elapsed()
}

#[test]
fn a_deep_queue_serves_at_once() {
    require!(slowdisk::available());
    let disk = SlowDisk::builder().queue(64).build().unwrap();
    let device = LoopDevice::on(&disk).unwrap();
    read_at_once(&disk, device.path());
}

#[test]
fn a_queue_of_one_serves_one_by_one() {
    require!(slowdisk::available());
    let disk = SlowDisk::builder()
        .latency(LATENCY)
        .queue(1)
        .build()
        .unwrap();
    let device = LoopDevice::on(&disk).unwrap();
    assert!(read_concurrently(device.path()) >= LATENCY * 64);
    assert_eq!(disk.counters().deepest, 1);
}

#[test]
fn through_a_filesystem_as_well() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let disk = SlowDisk::builder().queue(64).build().unwrap();
    let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
    let path = mount.path().join("file");
    std::fs::write(&path, vec![7; 4 << 20]).unwrap();
    evict(&File::open(&path).unwrap()).unwrap();
    read_at_once(&disk, &path);
}
