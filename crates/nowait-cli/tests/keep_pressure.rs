//! Tests of `nowait keep` with memory pressure. The kernel reports pressure for the whole machine, so
//! these tests are apart from the others.

#[path = "common/program.rs"]
mod program;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use program::{Group, MIB, cached_bytes, cold, directory, evict, nowait, run, wait_until, word};
use serde_json::Value;

/// A child that is killed at the end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that reads more than the group's memory, again and again.
fn reader(group: &Group, file: &Path) -> Killed {
    let script = "\
import os, sys, threading
kept = bytearray(64 << 20)
def read():
    while True:
        file = os.open(sys.argv[1], os.O_RDONLY)
        while os.read(file, 1 << 20): pass
        os.close(file)
threads = [threading.Thread(target=read, daemon=True) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(file);
    Killed(group.around(&mut command).spawn().unwrap())
}

/// Memory that grows by 5 MiB for each line of standard input.
const GROWING: &str = "\
import sys
kept = []
for line in sys.stdin:
    kept.append(bytearray(b'x') * (5 << 20))
    print('grown', flush=True)";

#[test]
fn locked_files_make_room_before_the_kernel_kills_a_process() {
    let Some(group) = Group::new(150 * MIB) else {
        return slowdisk::skip_or_fail("a cgroup with a memory controller");
    };
    let dir = directory();
    let file = cold(dir.path().join("file"), 400 * MIB);
    let mut command = nowait(["keep", "--lock", "--budget", "100%", word(&file)]);
    let mut keep = Killed(group.around(&mut command).spawn().unwrap());
    let pid = keep.0.id();
    let locked = || {
        let status = std::fs::read(format!("/proc/{pid}/status")).unwrap();
        nowait_page_cache::proc::number_of(&status, "VmLck:").unwrap() << 10
    };
    wait_until("much is locked", || locked() > 90 * MIB);
    assert!(locked() <= 150 * MIB / 4 * 3);
    let mut neighbour = Command::new("python3");
    neighbour.args(["-c", GROWING]);
    let neighbour = group.around(&mut neighbour);
    neighbour.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut neighbour = Killed(neighbour.spawn().unwrap());
    let mut to = neighbour.0.stdin.take().unwrap();
    let mut lines = BufReader::new(neighbour.0.stdout.take().unwrap()).lines();
    // The memory of both programs is within 25 MiB.
    for grown in 1..=20 {
        wait_until("there is room", || {
            assert!(keep.0.try_wait().unwrap().is_none(), "it was killed");
            locked() + (grown * 5 + 25) * MIB <= 150 * MIB
        });
        writeln!(to, "more").unwrap();
        let line = lines.next();
        assert!(
            line.is_some(),
            "killed at {grown}: locked {} MiB",
            locked() / MIB
        );
    }
    drop(neighbour);
    // The memory is free again.
    wait_until("much is locked again", || locked() > 90 * MIB);
}

#[test]
fn the_last_paths_are_given_up_first_and_come_back() {
    if !Path::new("/proc/pressure/memory").exists() {
        return slowdisk::skip_or_fail("/proc/pressure/memory");
    }
    for (mode, kept) in [("--lock", "locked"), ("--touch", "resident_estimated")] {
        let Some(group) = Group::new(256 * MIB) else {
            return slowdisk::skip_or_fail("a cgroup with a memory controller");
        };
        let dir = directory();
        let files = ["1", "2", "3", "4"].map(|name| cold(dir.path().join(name), 32 * MIB));
        let large = cold(dir.path().join("large"), 400 * MIB);
        let mut command = nowait(["keep", mode, "--budget", "128M"]);
        command.args(&files).stdin(Stdio::null());
        let keep = Killed(group.around(&mut command).spawn().unwrap());
        let pid = keep.0.id();
        let status = || -> Value {
            let report = run(&mut nowait(["keep", "--status", "--json"])).json();
            let all = report["instances"].as_array().unwrap();
            let found = all.iter().find(|one| one["pid"] == pid);
            found.cloned().unwrap_or_default()
        };
        let budget =
            |status: &Value, at: usize| status["paths"][at]["budget"].as_u64().unwrap_or(0);
        wait_until("all is kept", || status()["total"][kept] == 128 * MIB);
        let hog = reader(&group, &large);
        wait_until("the last file is given up", || {
            let status = status();
            for at in 1..4 {
                assert!(budget(&status, at) <= budget(&status, at - 1), "{status:#}");
            }
            status["paths"].is_array() && status["paths"][3][kept] == 0
        });
        assert!(status()["pressure"].as_u64().unwrap() > 0);
        evict(&files[3]);
        drop(hog);
        wait_until("all is kept again", || status()["total"][kept] == 128 * MIB);
        assert_eq!(cached_bytes(&files[3]), 32 * MIB);
        assert_eq!(word(&files[3]), status()["paths"][3]["path"]);
    }
}
