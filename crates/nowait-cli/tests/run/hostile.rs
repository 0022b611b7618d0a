//! Tests of `nowait run` with programs that write what they like into the channel, and with disks that do not answer.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{compile, fifo, libraries, nowait, open_directory, run, wait_until, word};
use nowait_ahead_channel::Kind;
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use slowdisk::{Fault, Filesystem, ServedTree, SlowDisk, TestMount};
use test_support::limit::{LONG, ended};

/// Compiles the program that writes into the channel.
pub fn hostile(directory: &Path) -> PathBuf {
    let kinds = format!("-DKINDS={}", Kind::ALL.len());
    compile("cc", "hostile.c", &["-std=gnu11", &kinds], directory)
}

fn run_of(words: &[&str]) -> Command {
    let mut command = nowait(["run"].iter().chain(words));
    command.env("NOWAIT_LIBRARY_DIR", libraries());
    command
}

/// Waits for the end of `nowait run`, and returns its exit code.
///
/// # Panics
/// If it does not end.
fn end(mut child: Child) -> Option<i32> {
    let ended = ended(&mut child);
    ended.expect("nowait run ends with its program").code()
}

#[test]
fn it_ends_with_a_program_that_writes_into_the_channel() {
    let directory = open_directory();
    let hostile = hostile(directory.path());
    for option in ["--ahead", "--data"] {
        for what in ["marks", "number", "random"] {
            let words = [option, "--stats", "--", word(&hostile), what];
            let child = run_of(&words).stderr(Stdio::null()).spawn().unwrap();
            assert_eq!(end(child), Some(7), "{words:?}");
        }
    }
}

#[test]
fn the_program_is_ended_by_a_signal_while_it_writes_into_the_channel() {
    let directory = open_directory();
    let hostile = hostile(directory.path());
    for signal in [Signal::INT, Signal::TERM] {
        let child = run_of(&["--", word(&hostile), "random", "on"])
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(200));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(end(child), None);
    }
}

#[test]
fn no_fifo_is_opened_for_an_event() {
    let directory = open_directory();
    let hostile = hostile(directory.path());
    let fifo = fifo(directory.path().join("fifo"));
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &fifo, inotify::WatchFlags::OPEN).unwrap();
    let inside = format!("{}/file", fifo.display());
    let words = [
        "--data",
        "--",
        word(&hostile),
        "events",
        word(&fifo),
        &inside,
        "/dev/tty",
        "/proc/1/root/etc",
        "/proc/self/fd/0",
    ];
    assert_eq!(end(run_of(&words).spawn().unwrap()), Some(7));
    let mut bytes = [0; 64];
    assert_eq!(rustix::io::read(&watch, &mut bytes), Err(Errno::AGAIN));
}

#[test]
fn no_fifo_is_opened_for_a_walk() {
    let directory = open_directory();
    let fifo = fifo(directory.path().join("fifo"));
    let words = ["--walk", word(&fifo), "--", "true"];
    let said = run_of(&words).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(end(said), Some(2));
}

/// A shell command that sends a signal to the helper.
fn to_the_helper(signal: &str) -> String {
    format!("helper=${{NOWAIT_AHEAD_CHANNEL#/proc/}}; kill -{signal} ${{helper%%/*}}")
}

#[test]
fn the_program_ends_as_usual_if_the_helper_does_not_answer() {
    let directory = open_directory();
    for (signal, after) in [("STOP", "CONT"), ("KILL", "0")] {
        let script = format!("{}; echo $helper; exit 3", to_the_helper(signal));
        let options = ["--stats", "--ahead", "--walk", word(directory.path())];
        let words = [&options[..], &["--", "sh", "-c", &script]].concat();
        let child = run_of(&words).stdout(Stdio::piped()).spawn().unwrap();
        let said = child.wait_with_output().unwrap();
        assert_eq!(said.status.code(), Some(3), "{signal}");
        // The stopped helper goes on, and ends.
        let helper = String::from_utf8(said.stdout).unwrap();
        let helper = helper.trim().split('/').next().unwrap().to_owned();
        run(Command::new("kill").args([&format!("-{after}"), &helper]));
        wait_until("the helper ends", || has_ended(&helper));
    }
}

/// Returns true if a process has ended.
fn has_ended(pid: &str) -> bool {
    // A process that was not waited for yet has no program.
    fs::read_link(format!("/proc/{pid}/exe")).is_err()
}

#[test]
fn a_run_that_waits_says_if_the_report_is_missing() {
    for signal in ["KILL", "STOP"] {
        let script = format!("{}; echo ${{helper%%/*}}; exit 3", to_the_helper(signal));
        let words = ["--wait", "--ahead", "--stats", "--", "sh", "-c", &script];
        let said = run(&mut run_of(&words));
        run(Command::new("kill").args(["-KILL", said.text().trim()]));
        assert_eq!(said.code, Some(3), "{signal}: {said:?}");
        assert!(said.err.contains("the report is missing"), "{said:?}");
    }
}

/// A filesystem without cached blocks, on a disk that answers no read.
fn stalled(disk: &SlowDisk) -> TestMount {
    let fill = |at: &Path| {
        fs::create_dir_all(at.join("d/below")).unwrap();
        fs::write(at.join("d/file"), "text").unwrap();
    };
    let mount = TestMount::filled(disk, Filesystem::Ext4, fill).unwrap();
    mount.remount().unwrap();
    disk.inject(Fault::stall(0..disk.size()).reads_only());
    mount
}

fn release(disk: &SlowDisk, mount: &TestMount) {
    disk.release_all();
    wait_until("the filesystem is not in use", || mount.remount().is_ok());
}

#[test]
fn it_ends_with_its_program_while_the_disk_hangs() {
    slowdisk::require!(slowdisk::available());
    let directory = open_directory();
    let hostile = hostile(directory.path());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    for walk in [false, true] {
        let mount = stalled(&disk);
        let listed = mount.path().join("d");
        let mut words = vec!["--wait", "--stats"];
        if walk {
            words.extend(["--walk", word(mount.path())]);
        }
        words.extend(["--ahead", "--", word(&hostile), "scan", word(&listed)]);
        let report = open_directory();
        let report = report.path().join("report");
        let mut command = run_of(&words);
        let child = command
            .stderr(fs::File::create(&report).unwrap())
            .spawn()
            .unwrap();
        let code = end(child);
        assert!(disk.stalled() > 0, "nothing waits for the disk");
        release(&disk, &mount);
        assert_eq!(code, Some(7), "{words:?}");
        let report = fs::read_to_string(report).unwrap();
        assert!(report.starts_with("nowait: read ahead "), "{report}");
    }
}

/// Lists some directories of a tree and reads their files, and waits for the end of its input.
const READS_SOME: &str = "\
import os, sys
for number in range(30):
    directory = f'{sys.argv[1]}/{number}'
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.inode()):
        entry.stat(follow_symlinks=False)
        open(entry.path, 'rb').read()
print('read', flush=True)
sys.stdin.read()
sys.exit(3)";

#[test]
fn it_ends_with_its_program_while_a_fuse_server_hangs() {
    slowdisk::require!(slowdisk::available());
    let directory = open_directory();
    for number in 0..300 {
        let below = directory.path().join(number.to_string());
        fs::create_dir(&below).unwrap();
        (0..5).for_each(|file| fs::write(below.join(file.to_string()), [7; 4096]).unwrap());
    }
    let tree = ServedTree::new(directory.path(), Duration::from_millis(1)).unwrap();
    let name = format!("fuse-{}", std::process::id());
    let learn = format!("--learn={name}");
    // The second run with --learn loads the profile of the first.
    for mode in ["--ahead", "--data", &learn, &learn] {
        let words = [mode, "--", "python3", "-c", READS_SOME, word(tree.path())];
        let mut command = run_of(&words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = [0; 5];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut line)
            .unwrap();
        tree.hang(true);
        drop(child.stdin.take());
        let code = end(child);
        tree.hang(false);
        assert_eq!((&line, code), (b"read\n", Some(3)), "{mode}");
        // The profile is written meanwhile.
        if mode.starts_with("--learn") {
            let shown = || run(&mut nowait(["learn", "show", &name])).code == Some(0);
            wait_until("the profile is written", shown);
        }
    }
    // The program does not use the tree.
    tree.hang(true);
    let child = run_of(&[&learn, "--", "sh", "-c", "sleep 0.2; exit 3"])
        .spawn()
        .unwrap();
    let code = end(child);
    tree.hang(false);
    run(&mut nowait(["learn", "forget", &name]));
    assert_eq!(code, Some(3));
}

#[test]
fn a_signal_ends_it_while_a_walk_cannot_begin() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        let mount = stalled(&disk);
        let below = mount.path().join("d");
        let words = ["--walk", word(&below), "--", "true"];
        let child = run_of(&words).spawn().unwrap();
        wait_until("a read reaches the disk", || disk.stalled() > 0);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let code = end(child);
        release(&disk, &mount);
        assert_eq!(code, None);
    }
}

#[test]
fn the_descriptors_of_nowait_run_are_closed_when_it_ends() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let mount = stalled(&disk);
    let words = ["--walk", word(mount.path()), "--", "echo", "text"];
    let child = run_of(&words).stdout(Stdio::piped()).spawn().unwrap();
    // The end of the pipe comes when no process has it open.
    let (to, read) = std::sync::mpsc::channel();
    std::thread::spawn(move || to.send(child.wait_with_output()));
    let output = read.recv_timeout(LONG);
    release(&disk, &mount);
    assert_eq!(output.unwrap().unwrap().stdout, b"text\n");
}

#[test]
fn signals_of_the_c_library_are_as_nowait_run_inherited_them() {
    let directory = open_directory();
    let hostile = hostile(directory.path());
    for how in ["0", "1"] {
        let said = |words: &[&str]| {
            let mut command = Command::new(&hostile);
            command.args(["signals", how]).args(words);
            let words = ["grep", "SigIgn", "/proc/self/status"];
            command.args(words).env("NOWAIT_LIBRARY_DIR", libraries());
            run(&mut command).done().out
        };
        let direct = said(&[]);
        assert_eq!(said(&[env!("CARGO_BIN_EXE_nowait"), "run", "--"]), direct);
    }
}

#[test]
fn nothing_is_left_of_many_runs() {
    let seconds = std::env::var("NOWAIT_SOAK_SECONDS").ok();
    let seconds: u64 = seconds.and_then(|it| it.parse().ok()).unwrap_or(3);
    let directory = open_directory();
    let hostile = hostile(directory.path());
    let name = directory.path().join("nowait");
    slowdisk::copy_program(env!("CARGO_BIN_EXE_nowait"), &name).unwrap();
    let tree = directory.path().join("tree");
    (0..200).for_each(|n| fs::create_dir_all(tree.join(format!("{}/d{n}", n % 7))).unwrap());
    let tree = word(&tree);
    let programs: [&[&str]; 5] = [
        &["--", "true"],
        &["--", "ls", "-lR", tree],
        &["--data", "--stats", "--", "du", "-s", tree],
        &["--walk", tree, "--", "find", tree],
        &["--", word(&hostile), "marks"],
    ];
    let (began, mut runs) = (Instant::now(), 0_u32);
    while runs < 10 || began.elapsed() < Duration::from_secs(seconds) {
        for words in programs {
            let mut command = Command::new(&name);
            command.arg("run").args(words);
            command.env("NOWAIT_LIBRARY_DIR", libraries());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            runs += 1;
            match runs % 4 {
                0 => {
                    std::thread::sleep(Duration::from_micros(u64::from(runs % 50) * 400));
                    let _ = kill_process(
                        Pid::from_child(&child),
                        [Signal::KILL, Signal::TERM][runs as usize / 4 % 2],
                    );
                    child.wait().unwrap();
                }
                _ => assert!(matches!(end(child), Some(0 | 7)), "{words:?}"),
            }
        }
    }
    let is_ours = |entry: std::io::Result<fs::DirEntry>| {
        let program = fs::read_link(entry.ok()?.path().join("exe")).ok()?;
        (program == name).then_some(())
    };
    wait_until("all helpers have ended", || {
        fs::read_dir("/proc").unwrap().filter_map(is_ours).count() == 0
    });
}
