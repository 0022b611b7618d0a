//! As many requests are in service at once as the disk has places, through a loop device as well.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use slowdisk::{Filesystem, LoopDevice, SlowDisk, TestMount, evict, require};

const LATENCY: Duration = Duration::from_millis(10);
const READS: u64 = 64;

/// 64 threads read one block each, spread so that no two are one request.
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
    let disk = SlowDisk::builder()
        .latency(LATENCY)
        .queue(64)
        .build()
        .unwrap();
    let device = LoopDevice::on(&disk).unwrap();
    let took = read_concurrently(device.path());
    assert!(took >= LATENCY);
    assert!(took < LATENCY * 64 / 4, "64 reads took {took:?}");
    assert!(disk.counters().deepest > 16, "{:?}", disk.counters());
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
    disk.set_latency(LATENCY);
    let took = read_concurrently(&path);
    assert!(took >= LATENCY);
    assert!(took < LATENCY * 64 / 4, "64 reads took {took:?}");
}
