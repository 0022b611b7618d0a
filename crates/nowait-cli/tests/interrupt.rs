//! A test that Ctrl-C ends a listing while a device hangs.

#[path = "../../nowait/tests/common/cold.rs"]
mod cold;
#[path = "common/program.rs"]
mod program;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};

use cold::Cold;
use program::{nowait, wait_until, word};
use rustix::process::{Pid, Signal, kill_process};
use slowdisk::{Fault, Filesystem, SlowDisk};

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
    let mut cold = Cold::new(Filesystem::Ext4, &disk, fill);
    let verbs: [&[&str]; 4] = [
        &["ls", "-R"],
        &["ls", "-lR"],
        &["ls", "-lR", "--sort", "none"],
        &["du"],
    ];
    for verb in verbs {
        let hangs: Vec<_> = (0..DIRECTORIES)
            .map(|i| cold.block_of(&cold.path().join(format!("d{i}")), 0))
            .collect();
        cold.chill();
        for place in hangs {
            disk.inject(Fault::stall(place).reads_only());
        }
        let words = verb.iter().copied().chain([word(cold.path())]);
        let mut child = nowait(words).stdout(Stdio::null()).spawn().unwrap();
        wait_until("nothing hangs", || disk.stalled() > 0);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        // Threads that wait for the device stay. All others end.
        wait_until("it goes on", || !threads(&child).contains(['R', 'S']));
        assert!(disk.stalled() > 0);
        disk.release_all();
        wait_until("it stays", || {
            threads(&child).chars().all(|state| state == 'Z')
        });
        let ended = child.wait().unwrap().signal();
        assert_eq!(ended, Some(libc::SIGINT), "{verb:?}");
        // No process has a file of it open, so it can be unmounted.
        cold.chill();
    }
}
