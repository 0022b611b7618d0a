//! Tests of `nowait run`: a program notices nothing of it. Each test runs programs alone and in each mode, and compares
//! what they print about themselves.
#![allow(unsafe_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::alone::{Alone, MODES, without_groups};
use crate::program::{MIB, all_libraries, cold, evict, open_directory, run, touch, word};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use slowdisk::{Filesystem, TestMount};

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
        // The number may also be a part of another one.
        all.push(said.replacen(&pid, "PID", 1));
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

#[test]
fn addresses_and_paths_that_the_kernel_refuses_are_refused() {
    let said = Alone::of("notices.c").compare(&[], &["refused"]);
    let refused = said.lines().filter(|line| line.ends_with("Bad address"));
    assert!(refused.count() > 20, "{said}");
    assert!(said.contains("File name too long"), "{said}");
}

/// The kernel holds the position of /proc/kmsg while a thread waits for the next message.
#[test]
fn a_file_is_closed_while_another_thread_or_process_reads_it() {
    if !rustix::process::geteuid().is_root() {
        return slowdisk::skip_or_fail("not root");
    }
    let said = Alone::of("notices.c").compare(&[], &["waits", "/proc/kmsg"]);
    assert_eq!(said, "closed 0\nclosed 1\n");
}

/// lseek(2) waits for another reader, and statfs(2) for a server.
#[test]
fn the_library_calls_neither_lseek_nor_statfs() {
    let missing = Command::new("strace").arg("-V").output().is_err();
    if missing || !rustix::process::geteuid().is_root() {
        return slowdisk::skip_or_fail("strace is missing, or not root");
    }
    let alone = Alone::of("notices.c");
    let traced = Alone::named("strace");
    // A filesystem without a device.
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    std::fs::write(file.path(), [7; 20_000]).unwrap();
    let calls = |mode: &[&str], before: &[&str]| {
        let trace = traced.directory.path().join("trace");
        let words = [
            "-f",
            "-qq",
            "-e",
            "trace=lseek,statfs,fstatfs",
            "-o",
            word(&trace),
        ];
        let program = [word(&alone.program), "vfork", word(file.path())];
        let said = run(&mut traced.command(mode, before, &[&words[..], &program].concat()));
        assert_eq!(said.code, Some(0), "{mode:?}: {said:?}");
        let trace = std::fs::read_to_string(trace).unwrap();
        // strace(1) also prints calls that are newer than itself.
        let is_one = |line: &&str| line.contains("lseek(") || line.contains("statfs(");
        let calls = trace.lines().filter(is_one);
        // The first word is the number of the process.
        let call = |line: &str| line.split_once(' ').unwrap().1.trim().to_owned();
        calls.map(call).collect::<Vec<_>>()
    };
    let expected = calls(&[], &[]);
    for mode in &MODES[1..] {
        assert_eq!(calls(mode, &[]), expected, "{mode:?}");
    }
    assert_eq!(
        calls(&["--keep-cache"], &[without_groups()]),
        expected,
        "surveys"
    );
}

/// A shell replaces a descriptor, and gives it back, for each redirection.
#[test]
fn the_library_makes_no_call_when_a_descriptor_is_replaced_that_no_file_is_read_from() {
    let missing = Command::new("strace").arg("-V").output().is_err();
    if missing || !rustix::process::geteuid().is_root() {
        return slowdisk::skip_or_fail("strace is missing, or not root");
    }
    let traced = Alone::named("strace");
    let trace = traced.directory.path().join("trace");
    let calls = |mode: &[&str], before: &[&str], redirections: usize| {
        let script = ": >/dev/null; ".repeat(redirections);
        let words = ["-qq", "-e", "trace=fcntl", "-o", word(&trace)];
        let words = [&words[..], &["sh", "-c", &script]].concat();
        run(&mut traced.command(mode, before, &words)).done();
        let trace = std::fs::read_to_string(&trace).unwrap();
        trace
            .lines()
            .filter(|line| line.contains("F_GETFL"))
            .count()
    };
    for (mode, before) in [
        (&["--learn=redirections"], &[][..]),
        (&["--keep-cache"], &[without_groups()]),
    ] {
        let [one, many] = [1, 20].map(|count| calls(mode, before, count));
        assert_eq!(one, many, "{mode:?}");
    }
}

#[test]
fn no_descriptor_appears_in_a_program() {
    let said = Alone::of("notices.c").compare(&[], &["descriptors", "/etc/passwd"]);
    let expected = "descriptors with other numbers: 0; children that inherit one: 0\n";
    assert_eq!(said, expected);
}

/// A mapping of a file would be read completely if the program locks its memory.
#[test]
fn a_program_that_locks_its_memory_reads_no_more() {
    let alone = Alone::of("notices.c");
    let base = mounted!(Filesystem::Ext4);
    let lower = base.path().join("lower");
    std::fs::create_dir(&lower).unwrap();
    let file = cold(lower.join("file"), 8 * MIB);
    let overlay = TestMount::overlay(base).expect("an overlay");
    for path in [&file, &overlay.path().join("file")] {
        for mode in MODES {
            evict(&file);
            touch(&file, MIB..MIB + 4096);
            let before = match mode {
                ["--keep-cache"] => vec![without_groups()],
                _ => Vec::new(),
            };
            let said = run(&mut alone.command(mode, &before, &["locked", word(path)]));
            let expected = (Some(0), "read from the disk: little\n");
            assert_eq!(
                (said.code, said.text()),
                expected,
                "{mode:?}, {path:?}: {said:?}"
            );
        }
    }
}

#[test]
fn a_copy_over_the_limit_of_file_sizes_is_short() {
    let alone = Alone::of("notices.c");
    let said = alone.compare(&[], &["limited", word(alone.directory.path())]);
    assert_eq!(said, "copied 8388608\n");
}

#[test]
fn a_child_of_vfork_uses_the_descriptors_of_its_parent() {
    let said = Alone::of("notices.c").compare(&[], &["vfork", "/etc/services"]);
    assert_eq!(said, "child: 7, position: 4096\n");
}
