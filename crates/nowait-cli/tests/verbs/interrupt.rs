//! Tests that Ctrl-C ends each verb while a device hangs.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::program::{nowait, wait_until, word};
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
    let saved = crate::program::directory();
    let snapshot = saved.path().join("snapshot");
    let verbs: [&[&str]; 7] = [
        &["scan", "-r"],
        &["scan", "-r", "--json"],
        &["du"],
        &["fincore"],
        &["evict"],
        &["warm", "--metadata"],
        &["cache", "save", "-o", word(&snapshot)],
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
    // A part is no snapshot.
    assert!(!snapshot.exists());
}

#[test]
fn an_interrupt_leaves_nothing_of_a_snapshot_that_a_device_does_not_take() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let mount = TestMount::filled(&disk, Filesystem::Ext4, |_| {}).unwrap();
    let before = names(mount.path());
    let files = crate::program::directory();
    fill(files.path());
    disk.inject(Fault::stall(0..disk.size()).writes_only());
    let snapshot = mount.path().join("snapshot");
    let words = ["cache", "save", "-o", word(&snapshot), word(files.path())];
    let mut child = nowait(words).stderr(Stdio::null()).spawn().unwrap();
    wait_until("a write reaches the device", || disk.stalled() > 0);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    wait_until("the process is ending", || is_ending(&child));
    disk.release_all();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names(mount.path()), before);
}

fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    let names = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Returns true if the process has ended, or if the kernel has told all its threads to end: SIGKILL is pending. A thread ends when
/// its call returns, at once if a signal can end that call. Calls on block devices and on FUSE servers that have begun with a request
/// are not among them.
fn is_ending(child: &Child) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let mut statuses =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    statuses.all(|status| {
        let line = |name| status.lines().find_map(|line| line.strip_prefix(name));
        let pending = line("SigPnd:\t").map(|bits| u64::from_str_radix(bits, 16).unwrap());
        line("State:\t").is_some_and(|state| state.starts_with(['Z', 'X']))
            || pending.is_some_and(|bits| bits & 1 << (Signal::KILL.as_raw() - 1) != 0)
    })
}

#[test]
fn an_interrupt_ends_each_verb_whose_own_thread_waits_for_the_device() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let mount = TestMount::filled(&disk, Filesystem::Ext4, fill).unwrap();
    let saved = crate::program::directory();
    let snapshot = saved.path().join("snapshot");
    let file = mount.path().join("d1/f1");
    fs::write(&file, [0; 4096]).unwrap();
    let save = ["cache", "save", "-o", word(&snapshot), word(&file)];
    crate::program::run(&mut nowait(save)).done();
    let (file, directory) = (word(&file), file.parent().unwrap());
    let (directory, other) = (word(directory), saved.path().join("other"));
    let verbs: [&[&str]; 10] = [
        &["scan", directory],
        &["du", directory],
        &["fincore", file],
        &["fincore", "-r", directory],
        &["evict", file],
        &["warm", file],
        &["warm", "--metadata", directory],
        &["cache", "save", "-o", word(&other), file],
        &["cache", "restore", word(&snapshot)],
        &["doctor", directory],
    ];
    for words in verbs {
        mount.remount().unwrap();
        disk.inject(Fault::stall(0..disk.size()).reads_only());
        let mut child = nowait(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("a read reaches the device", || disk.stalled() > 0);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        wait_until("the process is ending", || is_ending(&child));
        assert!(disk.stalled() > 0);
        disk.release_all();
        let status = child.wait().unwrap();
        let by_signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert!(
            status.code() == Some(130) || by_signal == Some(2),
            "{words:?}: {status}"
        );
        wait_until("the filesystem is not in use", || mount.remount().is_ok());
    }
}
