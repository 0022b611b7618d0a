//! The system calls of `read_dir` and of `Scan::open` in all threads, counted by strace(1), and their operations in the engine.
//! A worker opens and lists a small directory in one call.

use std::fs;
use std::path::Path;
use std::process::Command;

use nowait::{Engine, Scan};
use slowdisk::Filesystem;

use crate::common::children::{in_child_by, role, this_program};
use crate::common::files::scratch;
use crate::common::mounts::mounted;

/// The number of times that each directory is listed.
const TIMES: usize = 20;

/// Directories, and their numbers of names.
const SIZES: [(&str, usize); 3] = [("empty", 0), ("small", 10), ("large", 3_000)];

const FUNCTIONS: [&str; 2] = ["read_dir", "Scan::open"];

/// open, fstat, fstatfs, getdents64 twice, close.
const MOST: usize = 6;

/// Returns the number of names.
async fn list(by: &str, path: &Path) -> usize {
    let mut n = 0;
    match by {
        "read_dir" => {
            let mut names = nowait::tokio::read_dir(path).await.unwrap();
            while names.next_entry().await.unwrap().is_some() {
                n += 1;
            }
        }
        "Scan::open" => {
            let mut scan = Scan::open(path).await.unwrap();
            while let Some(batch) = scan.batch().await {
                n += batch.unwrap().len();
            }
        }
        _ => unreachable!("{by}"),
    }
    n
}

/// Each directory with each function. Workers may still end their turns after a large directory: it is the last one.
fn rows() -> impl Iterator<Item = (&'static str, (&'static str, usize))> {
    let with_each = |size| FUNCTIONS.map(|by| (by, size));
    SIZES.into_iter().flat_map(with_each)
}

/// Lists the directories. getppid(2) is a mark in the log: before each listing, and after it.
fn list_all(dir: &Path) {
    let runtime = ::tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    for (by, (name, size)) in rows() {
        for _ in 0..TIMES {
            let before = Engine::process().unwrap().stats();
            let _ = rustix::process::getppid();
            assert_eq!(runtime.block_on(list(by, &dir.join(name))), size);
            let _ = rustix::process::getppid();
            let after = Engine::process().unwrap().stats();
            if name != "large" {
                let done = (after.workers - before.workers, after.ring - before.ring);
                assert_eq!((done, after.turns), ((1, 0), before.turns), "{by}, {name}");
            }
        }
    }
}

/// The lines of each listing in the log of strace(1), of all threads, and the ID of the calling thread. Waits for other threads,
/// and for memory, are left out.
fn listings(log: &str) -> (&str, Vec<Vec<&str>>) {
    const OTHERS: [&str; 9] = [
        "futex(",
        "sched_yield(",
        "mmap(",
        "munmap(",
        "mprotect(",
        "madvise(",
        "brk(",
        "F_GETFD",
        "resumed>",
    ];
    let (mut listings, mut thread) = (Vec::new(), "");
    let mut inside = false;
    for line in log.lines() {
        if line.contains(" getppid(") {
            inside = !inside;
            thread = line.split(' ').next().unwrap();
            if inside {
                listings.push(Vec::new());
            }
        } else if inside && !OTHERS.iter().any(|it| line.contains(it)) {
            listings.last_mut().unwrap().push(line);
        }
    }
    (thread, listings)
}

fn check(dir: &Path) {
    if let Some(dir) = role() {
        return list_all(Path::new(&dir));
    }
    for (name, size) in SIZES {
        fs::create_dir(dir.join(name)).unwrap();
        for n in 0..size {
            fs::write(dir.join(name).join(format!("name{n}")), "").unwrap();
        }
    }
    let logs = scratch();
    let log = logs.path().join("log");
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-qq", "--signal=none", "-o"]);
    command.arg(&log).arg(this_program());
    in_child_by(command, dir.to_str().unwrap());
    let log = fs::read(log).unwrap();
    let log = String::from_utf8_lossy(&log);
    let (thread, listings) = listings(&log);
    assert_eq!(listings.len(), rows().count() * TIMES);
    for ((by, (name, _)), listings) in rows().zip(listings.chunks(TIMES)) {
        let least = listings.iter().min_by_key(|calls| calls.len()).unwrap();
        assert!(
            name == "large" || least.len() <= MOST,
            "{by}, {name}: {least:#?}"
        );
        let by_caller = |line: &&&str| line.starts_with(thread) && !line.contains(" close(");
        assert_eq!(
            least.iter().filter(by_caller).count(),
            0,
            "{by}, {name}: {least:#?}"
        );
    }
    // The limits for processors.
    let reads = |line: &&&str| line.contains("cgroup");
    let all: Vec<&&str> = listings.iter().flatten().filter(reads).collect();
    let by_caller = |line: &&&&str| line.starts_with(thread);
    assert_eq!(all.iter().filter(by_caller).count(), 0, "{all:#?}");
    let opened = all
        .iter()
        .filter(|line| line.contains("\"/proc/self/cgroup\""));
    assert!(opened.count() <= 1, "{all:#?}");
}

fn on(filesystem: Filesystem) {
    if role().is_some() {
        return check(Path::new(""));
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return slowdisk::skip_or_fail("strace is missing (Debian package strace)");
    }
    let mount = mounted!(filesystem);
    check(mount.path());
}

#[test]
fn a_small_directory_is_one_call_of_a_worker_on_ext4() {
    on(Filesystem::Ext4);
}

#[test]
fn a_small_directory_is_one_call_of_a_worker_on_xfs() {
    on(Filesystem::Xfs);
}

#[test]
fn a_small_directory_is_one_call_of_a_worker_on_btrfs() {
    on(Filesystem::Btrfs);
}

#[test]
fn a_small_directory_is_one_call_of_a_worker_on_tmpfs() {
    on(Filesystem::Tmpfs);
}

#[test]
fn a_small_directory_is_one_call_of_a_worker_on_overlayfs() {
    on(Filesystem::Overlay);
}
