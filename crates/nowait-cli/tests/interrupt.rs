//! A test that Ctrl-C ends a listing while a device hangs.

#[path = "common/program.rs"]
mod program;

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use program::{nowait, wait_until, word};
use rustix::process::{Pid, Signal, kill_process};
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};

const DIRECTORIES: usize = 40;

fn fill(at: &Path) {
    for i in 0..DIRECTORIES {
        let dir = at.join(format!("d{i}"));
        fs::create_dir(&dir).unwrap();
        for j in 0..100 {
            fs::write(dir.join(format!("f{j}")), "").unwrap();
        }
    }
}

/// The state of each thread, as in ps(1): D waits for a device, Z has ended.
fn threads(child: &Child) -> String {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let state = |task: std::io::Result<fs::DirEntry>| {
        // A thread that has ended since it was listed has no file.
        let stat = fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    };
    tasks.filter_map(state).collect()
}

#[test]
fn an_interrupt_ends_a_listing_while_a_device_hangs() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let cold = TestMount::filled(&disk, Filesystem::Ext4, fill).unwrap();
    let verbs: [&[&str]; 6] = [
        &["scan", "-r"],
        &["scan", "-r", "--json"],
        &["du"],
        &["fincore"],
        &["evict"],
        &["warm", "--metadata"],
    ];
    for verb in verbs {
        let hangs: Vec<_> = (0..DIRECTORIES)
            .map(|i| {
                cold.directory_block(cold.path().join(format!("d{i}")), 0)
                    .unwrap()
            })
            .collect();
        cold.remount().unwrap();
        for place in hangs {
            disk.inject(Fault::stall(place).reads_only());
        }
        let words = verb.iter().copied().chain([word(cold.path())]);
        let mut child = nowait(words).stdout(Stdio::null()).spawn().unwrap();
        wait_until("a read reaches the device", || disk.stalled() > 0);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        // Only threads that wait for the device stay.
        wait_until("the other threads end", || {
            !threads(&child).contains(['R', 'S'])
        });
        assert!(disk.stalled() > 0);
        disk.release_all();
        wait_until("the process ends", || {
            threads(&child).chars().all(|state| state == 'Z')
        });
        assert_eq!(child.wait().unwrap().code(), Some(130), "{verb:?}");
        // The kernel may end the ring of a process, and the reads of its workers, after the process.
        wait_until("the filesystem is not in use", || cold.remount().is_ok());
    }
}
