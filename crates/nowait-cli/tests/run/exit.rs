//! Tests of `nowait run`: the program's output, its end, and its signals.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::program::{directory, libraries, nowait, run, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use slowdisk::{Entry, Filesystem, SlowDisk, TestMount};
use test_support::{Excuse, repeat};

fn run_of(words: &[&str]) -> Command {
    let mut command = nowait(["run"].iter().chain(words));
    command.env("NOWAIT_LIBRARY_DIR", libraries());
    command
}

#[test]
fn the_end_is_that_of_the_program() {
    assert_eq!(run(&mut run_of(&["sh", "-c", "exit 7"])).code, Some(7));
    assert_eq!(run(&mut run_of(&["--", "true"])).done().out, b"");
    // Rust's runtime handles SIGSEGV and SIGBUS, and ignores SIGPIPE.
    for (signal, name) in [
        (15, "TERM"),
        (9, "KILL"),
        (2, "INT"),
        (1, "HUP"),
        (6, "ABRT"),
        (11, "SEGV"),
        (7, "BUS"),
        (13, "PIPE"),
        (34, "34"),
    ] {
        let script = format!("kill -{name} $$; exit 3");
        let status = run_of(&["sh", "-c", &script]).status().unwrap();
        assert_eq!(status.signal(), Some(signal), "{name}: {status}");
    }
}

#[test]
fn the_exit_status_is_known_if_sigchld_was_ignored() {
    for script in ["exit 5", "sleep 0.1; exit 5"] {
        let mut command = Command::new("env");
        command.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_nowait"), "run"]);
        command.args(["sh", "-c", script]);
        let said = run(command.env("NOWAIT_LIBRARY_DIR", libraries()));
        assert_eq!(said.code, Some(5), "{said:?}");
    }
}

#[test]
fn the_program_inherits_what_nowait_run_inherited() {
    for (script, expected) in [
        (
            "trap '' PIPE; exec \"$@\" grep SigIgn /proc/self/status",
            true,
        ),
        ("exec \"$@\" grep SigIgn /proc/self/status", true),
        ("exec \"$@\" cat <&-", false),
        ("exec \"$@\" echo text >&-", false),
    ] {
        let shell = |words: &[&str]| {
            let mut command = Command::new("sh");
            command.args(["-c", script, "sh"]).args(words);
            run(command.env("NOWAIT_LIBRARY_DIR", libraries()))
        };
        let direct = shell(&[]);
        assert_eq!(direct.code == Some(0), expected, "{script}: {direct:?}");
        let said = shell(&[env!("CARGO_BIN_EXE_nowait"), "run", "--"]);
        assert_eq!(
            (said.code, &said.out),
            (direct.code, &direct.out),
            "{script}: {said:?}"
        );
    }
}

#[test]
fn a_script_without_an_interpreter_is_run_by_the_shell() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    fs::write(&script, "echo \"$0 $1\"\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let path = script.to_str().unwrap();
    let path_of = format!("{}:/usr/bin:/bin", directory.path().display());
    for name in [path, "script"] {
        let said = run(run_of(&[name, "text"]).env("PATH", &path_of));
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(said.text(), format!("{path} text\n"));
    }
}

#[test]
fn the_environment_has_two_variables_more() {
    let said = run(run_of(&["env", "-0"])
        .env_clear()
        .env("NOWAIT_LIBRARY_DIR", libraries())
        .env("PATH", "/usr/bin:/bin")
        .env("EMPTY", "")
        .env("TEXT", "a=b\n\u{e9}"))
    .done();
    let names: Vec<&str> = said
        .text()
        .split_terminator('\0')
        .map(|variable| variable.split_once('=').unwrap().0)
        .collect();
    let expected = [
        "EMPTY",
        "NOWAIT_LIBRARY_DIR",
        "PATH",
        "TEXT",
        "LD_PRELOAD",
        "NOWAIT_AHEAD_CHANNEL",
    ];
    assert_eq!(names, expected);
    assert!(said.text().contains("TEXT=a=b\n\u{e9}\0"), "{said:?}");
}

#[test]
fn a_program_runs_without_shared_memory() {
    let mut command = run_of(&["--stats", "--", "echo", "text"]);
    crate::program::limited_to(&mut command, "fsize", crate::program::MIB);
    let said = run(command.env("NOWAIT_LIBRARY_DIR", libraries()));
    assert_eq!((said.code, said.text()), (Some(0), "text\n"), "{said:?}");
    assert!(said.err.contains("nothing is read ahead"), "{said:?}");
}

#[test]
fn the_program_may_unmount_what_it_has_read() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let mount = TestMount::filled(&disk, Filesystem::Ext4, fill).unwrap();
    let again = directory();
    // The walk of a large directory may take longer than the program. umount(8) of other users than root loads no library: the
    // walk ends if the program does nothing in the tree.
    // The library asks the helper for at most two seconds each time. On a busy machine that may be too short.
    let a_few_times = "for i in $(seq 5); do umount \"$1\" && exit; done; exit 1";
    let again_and_again = "for i in $(seq 6000); do
        LD_PRELOAD= umount \"$1\" 2>/dev/null && exit; ls -l /proc/self >/dev/null; sleep 0.01; done; umount \"$1\"";
    for (program, unmount) in [
        ("grep -rc b \"$1/tree\" >/dev/null", a_few_times),
        ("ls -lR \"$1/tree\" | head -n 500 | wc -l", a_few_times),
        ("grep -rc b \"$1/tree\" >/dev/null", again_and_again),
        ("ls -lR \"$1/tree\" | head -n 500 | wc -l", again_and_again),
    ] {
        // The files are cold, and those of other tests stay as they are.
        wait_until("the filesystem is not in use", || mount.remount().is_ok());
        let script = format!("mount --bind \"$0\" \"$1\"; {program}; {unmount}");
        let words = ["--data", "--", "sh", "-c", &script];
        let mut command = run_of(&words);
        let said = run(command.args([mount.path(), again.path()]));
        if said.code != Some(0) {
            // The mount must not outlive the test.
            run(Command::new("umount").arg("-l").arg(again.path()));
        }
        assert_eq!(said.code, Some(0), "{script}: {said:?}");
    }
}

/// The walks and the reads end before `nowait run --wait`.
#[test]
fn the_caller_may_unmount_what_the_program_has_read() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let mount = TestMount::filled(&disk, Filesystem::Ext4, fill).unwrap();
    let again = directory();
    let nowait = env!("CARGO_BIN_EXE_nowait");
    disk.set_latency(Duration::from_millis(20));
    for options in ["--data", "--data --walk \"$1\"", "--stats"] {
        let script = format!(
            "mount --bind \"$0\" \"$1\"
            {nowait} run --wait {options} -- sh -c 'ls -lR \"$1/tree\" | head -n 500 | wc -l' - \"$1\"
            umount \"$1\""
        );
        let is_unmounted = || {
            wait_until("the filesystem is not in use", || mount.remount().is_ok());
            let mut command = Command::new("sh");
            command
                .args(["-c", &script])
                .env("NOWAIT_LIBRARY_DIR", libraries());
            let said = run(command.args([mount.path(), again.path()]));
            if said.code != Some(0) {
                run(Command::new("umount").arg("-l").arg(again.path()));
            }
            said.code == Some(0)
        };
        // The helper waits for at most two seconds. On a busy machine that may be too short.
        assert!((0..5).any(|_| is_unmounted()), "{options}");
    }
}

#[test]
fn signals_are_passed_to_the_program() {
    let root = directory();
    let root = root.path().to_str().unwrap();
    for walk in [
        &["--ahead"][..],
        &["--walk", root],
        &["--ahead", "--walk", root],
    ] {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::USR1] {
            let script =
                "trap 'exit 5' INT TERM HUP USR1; echo ready; while :; do sleep 0.01; done";
            let words = [walk, &["--", "sh", "-c", script]].concat();
            let mut child = run_of(&words).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            let out = BufReader::new(child.stdout.take().unwrap());
            { out }.read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            kill_process(Pid::from_child(&child), signal).unwrap();
            assert_eq!(
                child.wait().unwrap().code(),
                Some(5),
                "{walk:?}: {signal:?}"
            );
        }
    }
}

#[test]
fn options_before_the_program_are_those_of_nowait() {
    let said = run(&mut run_of(&["--stat", "true"]));
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("'--stats'"), "{said:?}");
    for words in [
        &["echo", "--stats", "-x"][..],
        &["--", "echo", "--stats", "-x"],
    ] {
        assert_eq!(run(&mut run_of(words)).done().out, b"--stats -x\n");
    }
}

#[test]
fn a_program_that_cannot_be_run_is_an_error_as_in_shells() {
    let said = run(&mut run_of(&["--", "/nowhere/program"]));
    assert_eq!(said.code, Some(127));
    assert_eq!(said.err, "nowait: /nowhere/program: not found\n");
    let said = run(&mut run_of(&["--", "/etc/passwd"]));
    assert_eq!(said.code, Some(126));
    assert!(said.err.contains("Permission denied"), "{said:?}");
    assert_eq!(run(&mut run_of(&[])).code, Some(2));
    let said = run(&mut run_of(&[
        "--walk", "/nowhere", "--", "echo", "started",
    ]));
    assert_eq!((said.code, said.text()), (Some(1), ""));
    let mut without = run_of(&["--", "true"]);
    let said = run(without.env("NOWAIT_LIBRARY_DIR", "/nowhere"));
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("set NOWAIT_LIBRARY_DIR"), "{said:?}");
}

/// Makes one directory of many files, and many directories of few.
fn fill(at: &Path) {
    for (dirs, files) in [(1, 3000), (50, 30)] {
        for d in 0..dirs {
            let dir = at.join(format!("tree/{files}/d{d}"));
            fs::create_dir_all(&dir).unwrap();
            for f in 0..files {
                fs::write(dir.join(format!("f{f}")), [b'a' + (f % 26) as u8; 4096]).unwrap();
            }
        }
    }
}

/// The number behind `before` in a report of --stats, without its unit.
fn number(report: &str, before: &str) -> f64 {
    let (_, rest) = report.split_once(before).expect(report);
    let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
    rest[..digits.unwrap_or(rest.len())].parse().expect(report)
}

#[test]
fn the_output_is_the_same_and_the_caches_are_filled_ahead() {
    slowdisk::require!(slowdisk::available());
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
        let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
        let mount = TestMount::filled(&disk, filesystem, fill).unwrap();
        let tree = mount.path().join("tree");
        let tree = tree.to_str().unwrap();
        for (option, words) in [
            ("--ahead", &["ls", "-lR", tree][..]),
            ("--ahead", &["find", tree, "-ls"]),
            ("--ahead", &["du", "-a", tree]),
            ("--data", &["grep", "-rc", "b", tree]),
            ("--data", &["tar", "-cf", "/dev/stdout", tree]),
        ] {
            let direct = Command::new(words[0])
                .args(&words[1..])
                .env("LC_ALL", "C.UTF-8")
                .output();
            let direct = direct.unwrap().stdout;
            disk.set_latency(Duration::from_millis(1));
            let what = format!("{filesystem:?}: {words:?}");
            let read_ahead = || {
                let said = run(&mut run_of(
                    &[&["--wait", option, "--stats", "--"], words].concat(),
                ));
                assert_eq!(said.code, Some(0), "{said:?}");
                assert!(said.out == direct, "{what}");
                let is_ahead = number(&said.err, "read ahead ") > 0.0
                    && (option != "--data" || number(&said.err, "files: ") > 0.0);
                is_ahead.then_some(()).ok_or(said.err)
            };
            // The program may have ended before the helper has had a processor.
            let excuses = [
                Excuse::Busy(Duration::from_millis(10)),
                Excuse::ChildPreempted,
            ];
            repeat(&what, &excuses, || {
                mount.remount().unwrap();
                read_ahead()
            });
            // All is cached: the output alone is compared.
            let _ = read_ahead();
        }
    }
}

#[test]
fn nothing_is_read_ahead_on_a_disk_that_seeks() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).queue(1);
    let disk = disk.seek(Duration::from_millis(5)).build().unwrap();
    let mount = TestMount::filled(&disk, Filesystem::Ext4, fill).unwrap();
    let tree = mount.path().join("tree");
    for (below, words) in [("3000/d0", ["ls", "-l"]), ("30", ["ls", "-lR"])] {
        let below = tree.join(below);
        let options = [
            "--wait",
            "--stats",
            "--",
            words[0],
            words[1],
            below.to_str().unwrap(),
        ];
        // A call that waits for a processor looks like one that waits for a disk without a head.
        let reports: Vec<String> = (0..10)
            .map(|_| {
                mount.remount().unwrap();
                let said = run(&mut run_of(&options));
                assert_eq!(said.code, Some(0), "{said:?}");
                said.err
            })
            .take_while(|report| number(report, "read ahead ") > 0.0)
            .collect();
        assert!(reports.len() < 10, "{reports:?}");
    }
}

#[test]
fn a_walk_beside_the_program_has_one_worker_on_a_disk_that_seeks() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).queue(64);
    let disk = disk.seek(Duration::from_millis(30)).build().unwrap();
    let fill = |at: &Path| {
        for n in 0..4000 {
            let dir = at.join(format!("tree/d{}", n % 200));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(format!("f{n}")), "").unwrap();
        }
    };
    let mount = TestMount::filled(&disk, Filesystem::Ext4, fill).unwrap();
    mount.remount().unwrap();
    disk.take_log();
    let tree = mount.path().join("tree");
    let words = ["--walk", tree.to_str().unwrap(), "--", "sleep", "1"];
    run(&mut run_of(&words)).done();
    let log = disk.take_log();
    let in_flight = |at| {
        let holds = |entry: &&Entry| (entry.time..entry.time + entry.latency).contains(&at);
        log.iter().filter(holds).count()
    };
    let most = log.iter().map(|entry| in_flight(entry.time)).max();
    // The kernel reads ahead, too. With all workers it was 14 to 21 in most runs.
    assert!((1..=10).contains(&most.unwrap()), "{most:?}");
}

#[test]
fn a_static_program_is_followed_by_inotify() {
    slowdisk::require!(slowdisk::available());
    if Command::new("busybox").arg("true").status().is_err() {
        return slowdisk::skip_or_fail("busybox is missing (Debian package busybox-static)");
    }
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let mount = TestMount::filled(&disk, Filesystem::Ext4, fill).unwrap();
    let tree = mount.path().join("tree");
    let tree = tree.to_str().unwrap();
    let words = ["busybox", "tar", "-cf", "/dev/stdout", tree];
    let direct = Command::new(words[0]).args(&words[1..]).output().unwrap();
    mount.remount().unwrap();
    disk.set_latency(Duration::from_millis(1));
    let options = ["--wait", "--walk", tree, "--data", "--stats", "--"];
    let said = run(&mut run_of(&[&options[..], &words].concat()));
    assert!(said.out == direct.stdout, "{}", said.err);
    assert!(number(&said.err, "read ahead ") > 0.0, "{}", said.err);
    assert!(number(&said.err, "files: ") > 0.0, "{}", said.err);

    // Without --walk, a message says so.
    let said = run(&mut run_of(&["--", "busybox", "true"]));
    assert_eq!(said.code, Some(0));
    assert!(said.err.contains("use --walk PATH"), "{}", said.err);
}

#[test]
fn a_program_that_soon_goes_elsewhere_wastes_little() {
    slowdisk::require!(slowdisk::available());
    let fill = |at: &Path| {
        for d in 0..1000 {
            let dir = at.join(format!("tree/d{d}"));
            fs::create_dir_all(&dir).unwrap();
            (0..50).for_each(|f| drop(fs::File::create(dir.join(format!("f{f}"))).unwrap()));
        }
    };
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let mount = TestMount::filled(&disk, Filesystem::Ext4, fill).unwrap();
    disk.set_latency(Duration::from_millis(1));
    let tree = mount.path().join("tree");
    let script = "cd \"$0\"; ls -l d1 d2 >/dev/null; sleep 2";
    let words = [
        "--wait",
        "--stats",
        "--",
        "sh",
        "-c",
        script,
        tree.to_str().unwrap(),
    ];
    let said = run(&mut run_of(&words));
    assert_eq!(said.code, Some(0), "{said:?}");
    // 64 inodes for each of some 100 calls, and what a walk has in hand. The tree has 51,000.
    assert!(number(&said.err, "used, ") < 25_000.0, "{}", said.err);
}

#[test]
fn nothing_is_watched_if_the_environment_says_so() {
    let root = directory();
    let words = [
        "--wait",
        "--stats",
        "--",
        "ls",
        "-l",
        root.path().to_str().unwrap(),
    ];
    let said = run(run_of(&words).env("NOWAIT_AHEAD", "off"));
    assert!(said.err.contains("called stat(2) 0 times"), "{said:?}");
    let said = run(&mut run_of(&words));
    assert!(!said.err.contains("called stat(2) 0 times"), "{said:?}");
}
