//! Tests of `nowait run`: a program notices nothing of it. Each test runs programs alone and in each mode, and compares
//! what they print about themselves.
#![allow(unsafe_code)]

#[path = "common/program.rs"]
mod program;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use program::{all_libraries, compile, open_directory, run, word};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use tempfile::TempDir;

/// The ways in which a program is run. The first one is without `nowait run`.
const MODES: [&[&str]; 8] = [
    &[],
    &["--ahead"],
    &["--data"],
    &["--keep-cache"],
    &["--stats"],
    &["--learn=alone"],
    // With a profile.
    &["--learn=alone"],
    &["--aio"],
];

/// The program, and a place for profiles.
struct Alone {
    program: PathBuf,
    directory: TempDir,
}

impl Alone {
    fn new() -> Alone {
        let directory = open_directory();
        let words = ["-std=gnu11", "-D_GNU_SOURCE"];
        let program = compile("cc", "alone.c", &words, directory.path());
        Alone { program, directory }
    }

    /// The program in a mode, with `before` in front of all.
    fn command(&self, mode: &[&str], before: &[&str], words: &[&str]) -> Command {
        let mut all: Vec<&str> = before.to_vec();
        if !mode.is_empty() {
            all.extend([env!("CARGO_BIN_EXE_nowait"), "run"]);
            all.extend(mode);
            all.push("--");
        }
        all.push(word(&self.program));
        all.extend(words);
        let mut command = Command::new(all[0]);
        command.args(&all[1..]);
        command.env("NOWAIT_LIBRARY_DIR", all_libraries());
        command.env("XDG_CACHE_HOME", self.directory.path());
        command.current_dir("/usr");
        command
    }

    /// Compares what the program prints in each mode.
    fn compare(&self, before: &[&str], words: &[&str]) -> String {
        let said = |mode: &&[&str]| {
            let said = run(&mut self.command(mode, before, words));
            assert_eq!(said.code, Some(0), "{mode:?}: {said:?}");
            said.text().to_owned()
        };
        let all: Vec<String> = MODES.iter().map(said).collect();
        for (mode, said) in MODES.iter().zip(&all) {
            assert_eq!(*said, all[0], "{mode:?}");
        }
        all[0].clone()
    }
}

fn first_line(child: &mut Child) -> BufReader<std::process::ChildStdout> {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    out
}

#[test]
fn a_program_is_the_process_that_its_caller_has_started() {
    let alone = Alone::new();
    let mut all = Vec::new();
    for mode in MODES {
        let mut command = alone.command(mode, &[], &["state"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        let pid = child.id().to_string();
        let said = child.wait_with_output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let first = said.lines().next().unwrap();
        assert!(
            first.starts_with(&format!("pid {pid} ")),
            "{mode:?}: {said}"
        );
        all.push(said.replace(&pid, "PID"));
    }
    assert!(all[0].contains("KiB"), "{}", all[0]);
    for (mode, said) in MODES.iter().zip(&all) {
        assert_eq!(*said, all[0], "{mode:?}");
    }
}

#[test]
fn each_signal_reaches_the_program_once() {
    let alone = Alone::new();
    for mode in MODES {
        for to_group in [false, true] {
            let mut command = alone.command(mode, &[], &["signals"]);
            command.process_group(0);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut out = first_line(&mut child);
            let pid = Pid::from_child(&child);
            // SIGKILL, SIGSTOP, SIGCONT, which the signals that stop a process cancel, and two of the C library.
            let sent: Vec<i32> = (1..65)
                .filter(|it| ![9, 18, 19, 32, 33].contains(it))
                .collect();
            for &signal in &sent {
                let target = if to_group {
                    -pid.as_raw_nonzero().get()
                } else {
                    pid.as_raw_nonzero().get()
                };
                // SAFETY: kill(2) accepts any number.
                assert_eq!(unsafe { libc::kill(target, signal) }, 0, "{signal}");
            }
            child.stdin.take().unwrap().write_all(b"\n").unwrap();
            let mut said = String::new();
            out.read_to_string(&mut said).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(0), "{mode:?}");
            let expected: String = sent.iter().map(|it| format!("signal {it}: 1\n")).collect();
            assert_eq!(said, expected, "{mode:?}, to the group: {to_group}");
        }
    }
}

#[test]
fn a_program_that_signals_its_process_group_gets_one_signal() {
    let alone = Alone::new();
    let said = alone.compare(&["setsid", "--wait"], &["group"]);
    assert_eq!(said, "signals 1\n");
}

#[test]
fn the_caller_notices_that_the_program_stops() {
    let alone = Alone::new();
    for mode in MODES {
        let mut command = alone.command(mode, &[], &["wait"]);
        let mut child = command
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        first_line(&mut child);
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{mode:?}: {status:?}");
        kill_process_group(pid, Signal::CONT).unwrap();
        let (_, status) = waitpid(Some(pid), WaitOptions::CONTINUED).unwrap().unwrap();
        assert!(status.continued(), "{mode:?}: {status:?}");
        kill_process(pid, Signal::ABORT).unwrap();
        let status = child.wait().unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(6), "{mode:?}");
    }
}

#[test]
fn a_terminal_that_closes_ends_the_program() {
    let alone = Alone::new();
    for mode in MODES {
        let mut inner = alone.command(mode, &[], &["wait"]);
        let words: Vec<_> = std::iter::once(inner.get_program())
            .chain(inner.get_args())
            .collect();
        let mut outer = Command::new(&alone.program);
        outer.arg("terminal").args(words);
        for (name, value) in inner.get_envs() {
            outer.env(name, value.unwrap());
        }
        assert_eq!(
            run(&mut outer).done().text(),
            "ready ended by signal 1\n",
            "{mode:?}"
        );
        inner.current_dir("/");
    }
}

#[test]
fn a_child_that_was_there_before_is_not_lost() {
    let alone = Alone::new();
    let before = [word(&alone.program), "children"];
    assert_eq!(alone.compare(&before, &["child"]), "child 1: 5, then -1\n");
}

#[test]
fn a_subreaper_gets_no_child() {
    let alone = Alone::new();
    let before = [word(&alone.program), "subreaper"];
    assert_eq!(alone.compare(&before, &["child"]), "child 0: 0, then -1\n");
}

#[test]
fn process_1_leaves_no_zombies_and_ends_after_the_helper() {
    if !rustix::process::geteuid().is_root() {
        return slowdisk::skip_or_fail("not root");
    }
    let alone = Alone::new();
    let before = ["unshare", "--pid", "--fork", "--mount-proc"];
    for mode in &MODES[1..] {
        let said = run(&mut alone.command(mode, &before, &["zombies"]));
        assert_eq!(
            (said.code, said.text()),
            (Some(0), "zombies 0\n"),
            "{mode:?}: {said:?}"
        );
    }
    let said = run(&mut alone.command(&["--stats"], &before, &["zombies"]));
    assert!(said.err.contains("the program called stat(2)"), "{said:?}");
}

#[test]
fn inherited_descriptors_and_the_working_directory_are_not_held() {
    if !rustix::process::geteuid().is_root() {
        return slowdisk::skip_or_fail("not root");
    }
    let alone = Alone::new();
    let place = open_directory();
    let lock = alone.directory.path().join("lock");
    for mode in MODES {
        // The shell leaves the directory, unmounts it, and closes the pipe and the lock.
        let nowait = match mode {
            [] => String::new(),
            _ => format!("{} run {} --", env!("CARGO_BIN_EXE_nowait"), mode.join(" ")),
        };
        let script = format!(
            "mount -t tmpfs none {0} && cd {0} && exec 9>{1} && flock 9 && exec {nowait} sh -c \
             'cd / && umount {0} && exec 9>&- && flock -n {1} true && echo free && exec >&- && sleep 0.3'",
            word(place.path()),
            word(&lock)
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]);
        command.env("NOWAIT_LIBRARY_DIR", all_libraries());
        command.env("XDG_CACHE_HOME", alone.directory.path());
        let said = run(&mut command);
        assert_eq!(
            (said.code, said.text()),
            (Some(0), "free\n"),
            "{mode:?}: {said:?}"
        );
    }
}

#[test]
fn a_program_that_cannot_be_executed_leaves_nothing() {
    let alone = Alone::new();
    let missing = Path::new("/nowhere/program");
    for mode in &MODES[1..] {
        let mut command = alone.command(mode, &[], &[]);
        let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        command = Command::new(command.get_program());
        command.args(&words[..words.len() - 1]).arg(missing);
        command.env("NOWAIT_LIBRARY_DIR", all_libraries());
        command.env("XDG_CACHE_HOME", alone.directory.path());
        let said = run(&mut command);
        assert_eq!(said.code, Some(127), "{mode:?}");
        assert_eq!(
            said.err, "nowait: /nowhere/program: not found\n",
            "{mode:?}"
        );
    }
    let profiles = alone.directory.path().join("nowait");
    assert!(!profiles.exists());
}
