//! Tests of `nowait demo`: its output, its file and its exit status. No figure is looked at.
#![allow(unsafe_code, reason = "seccomp(2) in a child")]

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program::{
    MIB, Said, as_nobody, cold, directory, fifo, limited_to, nowait, on_a_terminal, open_directory,
    run, wait_until, word,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const CONTENDERS: [&str; 3] = ["pread", "threads", "nowait"];

/// One round with a small file.
fn demo<'a>(words: &[&'a str]) -> Command {
    let all: [&'a str; 5] = ["demo", "--size", "1M", "--rounds", "1"];
    nowait([&all, words].concat())
}

fn report(words: &[&str]) -> Value {
    run(demo(words).arg("--json")).done().json()
}

/// Checks the rows of one table.
fn check(rows: &Value, in_flight: [u64; 3]) {
    assert_eq!(rows["rounds"], 1);
    for (name, in_flight) in CONTENDERS.into_iter().zip(in_flight) {
        let row = &rows[name];
        assert_eq!(row["in_flight"], in_flight, "{name}: {row}");
        for key in ["latency_p50_ns", "latency_p99_ns", "blocked_p99_ns"] {
            assert!(row[key].as_f64().unwrap() > 0.0, "{name}: {row}");
        }
        let mut spreads = vec![("reads_per_s", ["min", "median", "max"])];
        if name != "nowait" {
            spreads.push(("nowait_makes", ["low95", "median", "high95"]));
        }
        for (key, names) in spreads {
            let [low, median, high] = names.map(|of| row[key][of].as_f64().unwrap());
            assert!(
                0.0 < low && low <= median && median <= high,
                "{name}: {row}"
            );
        }
    }
    assert!(rows["nowait"]["nowait_makes"].is_null());
}

#[test]
fn json_has_the_documented_format() {
    let dir = directory();
    let report = report(&[word(dir.path())]);
    assert_eq!(report["demo"], 1);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["path"], word(dir.path()));
    assert_eq!(report["temporary"], true);
    assert_eq!(report["bytes"], MIB);
    assert_eq!(report["block"], 4096);
    assert_eq!(report["interrupted"], false);
    assert!(report["backend"]["why"].is_string());
    check(&report["cached"], [1, 1, 1]);
    match report["why_not_cold"].as_str() {
        None => check(&report["cold"], [1, 32, 32]),
        Some(why) => slowdisk::skip_or_fail(why),
    }
}

#[test]
fn text_fits_on_a_screen() {
    let dir = directory();
    let said = run(&mut demo(&[word(dir.path())])).done();
    assert!(said.text().lines().count() <= 24, "{said:?}");
    assert!(!said.text().contains('\x1b'), "{said:?}");
    for line in said.text().lines() {
        assert!(line.chars().count() <= 80 || line.contains('/'), "{line}");
    }
    for name in ["pread", "pool of threads", "nowait"] {
        assert!(said.text().contains(name), "{said:?}");
    }
    let narrow = on_a_terminal(&mut demo(&[word(dir.path())]));
    assert!(!narrow.contains("median  "), "{narrow}");
}

#[test]
fn no_file_is_left_and_a_file_that_is_named_is_not_changed() {
    let dir = directory();
    report(&[word(dir.path())]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let file = cold(dir.path().join("file"), 2 * MIB + 5);
    let before = fs::read(&file).unwrap();
    let report = report(&[word(&file)]);
    assert_eq!(report["temporary"], false);
    assert_eq!(report["bytes"], MIB);
    assert!(fs::read(&file).unwrap() == before);
}

#[test]
fn files_in_memory_and_holes_have_no_cold_reads() {
    let report_of = |path: &Path| {
        let report = report(&[word(path)]);
        check(&report["cached"], [1, 1, 1]);
        assert!(report["cold"].is_null(), "{report}");
        report["why_not_cold"].as_str().unwrap().to_owned()
    };
    let dir = directory();
    let hole = dir.path().join("hole");
    fs::File::create(&hole).unwrap().set_len(2 * MIB).unwrap();
    assert!(report_of(&hole).contains("hole"));
    let shm = Path::new("/dev/shm");
    // The magic number of tmpfs (statfs(2)).
    if rustix::fs::statfs(shm).is_ok_and(|fs| fs.f_type as u64 == 0x0102_1994) {
        assert!(report_of(shm).contains("in memory"));
    } else {
        slowdisk::skip_or_fail("a tmpfs on /dev/shm");
    }
}

#[test]
fn another_user_reads_a_file_of_root() {
    let dir = open_directory();
    let file = cold(dir.path().join("file"), 2 * MIB);
    let (mut command, _copy) = as_nobody(["demo", "--rounds", "1", "--json", word(&file)]);
    let report = run(&mut command).done().json();
    check(&report["cached"], [1, 1, 1]);
}

#[test]
fn without_io_uring_threads_read() {
    let dir = directory();
    let mut command = demo(&["--json", word(dir.path())]);
    let report = run(without_io_uring(&mut command)).done().json();
    assert_eq!(report["backend"]["name"], "threads", "{report}");
    check(&report["cached"], [1, 1, 1]);
    let report = run(demo(&["--json", word(dir.path())]).env("NOWAIT_BACKEND", "threads"));
    assert_eq!(report.done().json()["backend"]["name"], "threads");
}

#[test]
fn nonsense_is_refused_with_a_reason() {
    let dir = directory();
    let (empty, tiny) = (dir.path().join("empty"), dir.path().join("tiny"));
    fs::write(&empty, "").unwrap();
    fs::write(&tiny, "a few bytes").unwrap();
    let pipe = fifo(dir.path().join("pipe"));
    let at = word(dir.path());
    let refused: [(&[&str], i32, &str); 10] = [
        (&["/no/such/place"], 1, "/no/such/place"),
        (&["/dev/null"], 1, "neither a file nor a directory"),
        (&[word(&pipe)], 1, "neither a file nor a directory"),
        (&[word(&empty)], 1, "the file has 0 bytes"),
        (&[word(&tiny)], 1, "the file has 11 bytes"),
        (&["--size", "4K", at], 2, "too small"),
        (&["--size", "many", at], 2, "is not a size"),
        (&["--size", "1000T", at], 1, "name a smaller --size"),
        (&["--rounds", "0", at], 2, "--rounds"),
        (&["--rounds", "1", at, at], 2, "unexpected argument"),
    ];
    for (words, code, why) in refused {
        let said = run(&mut nowait([&["demo"], words].concat()));
        assert_eq!(said.code, Some(code), "{words:?}: {said:?}");
        assert!(said.err.contains(why), "{words:?}: {said:?}");
        assert!(said.out.is_empty(), "{words:?}: {said:?}");
    }
    let said = run(limited_to(&mut demo(&[at]), "fsize", 65536)).in_part();
    assert!(said.err.contains("ulimit -f"), "{said:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn an_interrupt_ends_it() {
    let dir = directory();
    let words = ["demo", "--size", "1M", "--rounds", "1000", word(dir.path())];
    let mut command = nowait(words);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let tasks = format!("/proc/{}/task", child.id());
    let name = |task: io::Result<fs::DirEntry>| fs::read(task?.path().join("comm"));
    wait_until("the pool has a thread", || {
        let mut tasks = fs::read_dir(&tasks).into_iter().flatten().map(name);
        tasks.any(|name| name.is_ok_and(|name| name.starts_with(b"blocking")))
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    let is_told = said.err.contains("interrupted") || said.text().contains("Interrupted");
    assert!(is_told, "{said:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Makes io_uring_setup(2) fail with EPERM, as containers do.
fn without_io_uring(command: &mut Command) -> &mut Command {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
    let line = |code: u32, jf: u8, k: u32| sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let lines = [
        line(BPF_LD | BPF_W | BPF_ABS, 0, 0),
        line(
            BPF_JMP | BPF_JEQ | BPF_K,
            1,
            libc::SYS_io_uring_setup as u32,
        ),
        line(
            BPF_RET | BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        line(BPF_RET | BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = move || {
        let program = libc::sock_fprog {
            len: lines.len() as u16,
            filter: lines.as_ptr().cast_mut(),
        };
        // SAFETY: the program has as many lines as it says.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
        };
        match done {
            true => Ok(()),
            false => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(filter) }
}
