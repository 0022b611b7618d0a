//! A request takes the latency asked for, and the seek cost when it does not follow on.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use slowdisk::{SlowDisk, require};

const LATENCY: Duration = Duration::from_millis(20);

fn timed_read(file: &File, offset: u64) -> Duration {
    let start = Instant::now();
    file.read_exact_at(&mut [0; 4096], offset).unwrap();
    start.elapsed()
}

#[test]
fn a_read_takes_the_latency() {
    require!(slowdisk::available());
    let disk = SlowDisk::builder().latency(LATENCY).build().unwrap();
    let file = File::open(disk.path()).unwrap();
    for block in 0..5 {
        assert!(timed_read(&file, block * 4096) >= LATENCY);
    }
    assert!(disk.log().iter().all(|entry| entry.latency >= LATENCY));
}

#[test]
fn nothing_is_cached_above_the_disk() {
    require!(slowdisk::available());
    let disk = SlowDisk::builder().latency(LATENCY).build().unwrap();
    let file = File::open(disk.path()).unwrap();
    for _ in 0..3 {
        assert!(timed_read(&file, 0) >= LATENCY);
    }
    assert_eq!(disk.counters().reads, 3);
}

#[test]
fn latency_changes_at_run_time() {
    require!(slowdisk::available());
    let disk = SlowDisk::builder().build().unwrap();
    let file = File::open(disk.path()).unwrap();
    timed_read(&file, 0);
    disk.set_latency(LATENCY);
    assert!(timed_read(&file, 0) >= LATENCY);
    let speed = disk.full_speed();
    timed_read(&file, 0);
    drop(speed);
    assert!(timed_read(&file, 0) >= LATENCY);

    // The server of the disk may lose its processor during a fast request.
    let slow = disk.log().iter().filter(|e| e.latency >= LATENCY).count();
    assert!(slow >= 2, "{:?}", disk.log());
}

#[test]
fn a_seek_costs_extra() {
    require!(slowdisk::available());
    let disk = SlowDisk::builder().seek(LATENCY).build().unwrap();
    let file = File::open(disk.path()).unwrap();
    timed_read(&file, 0);
    timed_read(&file, 4096);
    assert!(timed_read(&file, 1 << 20) >= LATENCY);
    assert!(disk.log()[2].latency >= LATENCY, "{:?}", disk.log());
}
