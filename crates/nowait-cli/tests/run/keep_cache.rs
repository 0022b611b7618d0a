//! Tests of `nowait run --keep-cache`: the page cache after the program has ended.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::program::{cold, directory, libraries, nowait, touch};
use test_support::pages;
use test_support::repeat::{Excuse, repeat};

const SIZE: u64 = 4 << 20;

fn keep_cache(script: &str) -> Command {
    let mut command = nowait(["run", "--wait", "--keep-cache", "--", "sh", "-c", script]);
    command.env("NOWAIT_LIBRARY_DIR", libraries());
    command
}

/// A shell command that ends the helper of the program.
const KILL_HELPER: &str = "helper=${NOWAIT_SURVEY_CHANNEL#/proc/}; kill -9 ${helper%%/*}";

/// The resident pages of a file. Reclaimed pages, which cachestat(2) remembers, are not among them.
fn resident(path: &Path) -> u64 {
    let file = fs::File::open(path).unwrap();
    let answer = nowait::residency::residency(&file, 0..u64::MAX).unwrap();
    answer.known().expect("residency").cached
}

/// Returns true if this machine has memory control groups of version 1.
fn has_groups() -> bool {
    let memory = Path::new("/sys/fs/cgroup/memory/memory.force_empty");
    if !memory.exists() {
        slowdisk::skip_or_fail("no memory control groups of version 1");
    }
    memory.exists()
}

/// The group of this process.
fn own_group() -> PathBuf {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.split_once(":memory:/"));
    Path::new("/sys/fs/cgroup/memory").join(own.unwrap().1)
}

/// The group of a program of this process, whose ID is the first line of its output.
fn group(run: &mut Child) -> PathBuf {
    let mut line = String::new();
    let out = run.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut line).unwrap();
    own_group().join(format!("nowait-run-{}", line.trim()))
}

#[test]
fn the_cache_is_as_before_however_the_program_ends() {
    if !has_groups() {
        return;
    }
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    let half = cold(at("half"), SIZE);
    let file = cold(at("cold"), SIZE);
    let made = at("made");
    for (end, code, signal) in [
        ("exit 3", Some(3), None),
        ("kill -9 $$", None, Some(9)),
        // `nowait run` passes it to the program.
        ("kill -TERM $PPID; sleep 30 & wait", None, Some(15)),
        // A process that the program leaves behind runs on, in the group of `nowait run`.
        ("sleep 1 & exit 0", Some(0), None),
    ] {
        let [half_name, name, made_name] =
            [&half, &file, &made].map(|path| crate::program::word(path));
        let script =
            format!("echo $$; cat {half_name} {name} > {made_name}; sync {made_name}; {end}");
        // Some machines reclaim pages without a shortage of memory (DAMON). No proof is left if the program has read them again.
        let is_kept = || {
            crate::program::evict(&half);
            touch(&half, 0..SIZE / 2);
            let before = pages::resident(&half);
            let mut run = keep_cache(&script).stdout(Stdio::piped()).spawn().unwrap();
            let group = group(&mut run);
            let status = run.wait().unwrap();
            assert_eq!((status.code(), status.signal()), (code, signal), "{end}");
            assert_eq!(resident(&file), 0, "{end}");
            assert_eq!(resident(&made), 0, "{end}");
            assert!(!group.exists(), "{end}");
            let after = pages::resident(&half);
            let pages = || (0..).zip(before.iter().zip(&after));
            let number = |(number, _): (u64, _)| number;
            let more = pages().filter(|(_, (before, after))| !**before && **after);
            assert_eq!(more.count(), 0, "{end}");
            let gone = pages().filter(|(_, (before, after))| **before && !**after);
            pages::are_reclaimed(&half, gone.map(number), u64::MAX)
        };
        assert!((0..5).any(|_| is_kept()), "{end}: pages are gone");
    }
}

/// The kernel adds up few changes only after a while, and may write pages while others are evicted.
#[test]
fn few_written_pages_are_evicted() {
    if !has_groups() {
        return;
    }
    let directory = directory();
    let made = ["one", "other"].map(|name| directory.path().join(name));
    let [one, other] = [&made[0], &made[1]].map(|path| crate::program::word(path));
    for pages in 1..100 {
        let bytes = pages * crate::program::PAGE;
        let script = format!("head -c {bytes} /dev/zero >{one} & echo text >{other}; wait");
        let left = || {
            assert!(keep_cache(&script).status().unwrap().success());
            let left = [resident(&made[0]), resident(&made[1])];
            made.iter().for_each(|path| fs::remove_file(path).unwrap());
            match left {
                [0, 0] => Ok(()),
                _ => Err((pages, left)),
            }
        };
        // `nowait run` waits this long for pages that are not yet written.
        let longest = Duration::from_secs(10);
        repeat("few written pages", &[Excuse::Took(longest)], left);
    }
}

#[test]
fn the_group_of_a_run_within_that_was_killed_is_removed() {
    if !has_groups() {
        return;
    }
    let directory = directory();
    let file = cold(directory.path().join("cold"), SIZE);
    // The program of the inner run ends its helper, and itself.
    let inner = format!(
        "cat {} >/dev/null; {KILL_HELPER} $$",
        crate::program::word(&file)
    );
    let script = "echo $$; \"$0\" run --keep-cache -- sh -c \"$1\"; exit 5";
    let mut run = nowait(["run", "--wait", "--keep-cache", "--", "sh", "-c", script]);
    run.args([env!("CARGO_BIN_EXE_nowait"), &inner]);
    run.env("NOWAIT_LIBRARY_DIR", libraries());
    let mut run = run.stdout(Stdio::piped()).spawn().unwrap();
    let group = group(&mut run);
    assert_eq!(run.wait().unwrap().code(), Some(5));
    assert!(!group.exists());
    assert_eq!(resident(&file), 0);
}

#[test]
fn the_group_of_a_run_that_was_killed_is_removed_by_the_next() {
    if !has_groups() {
        return;
    }
    let mut killed = keep_cache(&format!("{KILL_HELPER}; echo $$; sleep 60"));
    let mut killed = killed.stdout(Stdio::piped()).spawn().unwrap();
    let left = group(&mut killed);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(left.exists());
    // The program runs on.
    let run = || assert!(keep_cache("true").status().unwrap().success());
    run();
    assert!(left.exists());
    let program = fs::read_to_string(left.join("cgroup.procs")).unwrap();
    for process in program.lines() {
        let pid = rustix::process::Pid::from_raw(process.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    wait_until_empty(&left);
    run();
    assert!(!left.exists());
}

/// The program has ended, and its helper has not yet entered the group.
#[test]
fn another_run_does_not_remove_the_group_of_a_helper_that_runs() {
    if !has_groups() {
        return;
    }
    let directory = directory();
    let file = cold(directory.path().join("cold"), SIZE);
    let script = format!(
        "helper=${{NOWAIT_SURVEY_CHANNEL#/proc/}}; helper=${{helper%%/*}}; echo $$ $helper; \
         cat {} >/dev/null; kill -STOP $helper",
        crate::program::word(&file)
    );
    let mut run = nowait(["run", "--keep-cache", "--", "sh", "-c", &script]);
    let run = run.env("NOWAIT_LIBRARY_DIR", libraries()).output().unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    let (program, helper) = text.trim().split_once(' ').unwrap();
    let group = own_group().join(format!("nowait-run-{program}"));
    wait_until_empty(&group);
    assert!(keep_cache("true").status().unwrap().success());
    let is_there = group.exists();
    let helper = rustix::process::Pid::from_raw(helper.parse().unwrap()).unwrap();
    rustix::process::kill_process(helper, rustix::process::Signal::CONT).unwrap();
    assert!(is_there);
    test_support::limit::wait_until("the helper has removed the group", || !group.exists());
    assert_eq!(resident(&file), 0);
}

fn wait_until_empty(group: &Path) {
    // A run of another test may have removed it.
    while fs::read(group.join("cgroup.procs")).is_ok_and(|it| !it.is_empty()) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_group_that_the_program_has_made_stays_with_a_message() {
    if !has_groups() {
        return;
    }
    let script = "own=$(sed -n 's/.*:memory://p' /proc/self/cgroup); echo $own; \
                  mkdir /sys/fs/cgroup/memory$own/below";
    let run = keep_cache(script).output().unwrap();
    assert!(run.status.success());
    let own = String::from_utf8(run.stdout).unwrap();
    let group = Path::new("/sys/fs/cgroup/memory").join(own.trim().trim_start_matches('/'));
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(
        said.contains(&*group.to_string_lossy()) && said.contains("stays"),
        "{said}"
    );
    fs::remove_dir(group.join("below")).unwrap();
    fs::remove_dir(group).unwrap();
}

#[test]
fn the_report_says_what_was_evicted() {
    if !has_groups() {
        return;
    }
    let directory = directory();
    let file = cold(directory.path().join("cold"), SIZE);
    // The programs and their libraries are cached, and do not count.
    let mut before = nowait(["run", "--wait", "--", "sh", "-c", "cat /dev/null"]);
    let before = before.env("NOWAIT_LIBRARY_DIR", libraries()).status();
    assert!(before.unwrap().success());
    let script = format!("cat {} >/dev/null", crate::program::word(&file));
    let mut run = nowait([
        "run",
        "--wait",
        "--keep-cache",
        "--stats",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let run = run.env("NOWAIT_LIBRARY_DIR", libraries()).output().unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    let line = said.lines().find(|line| line.starts_with("page cache: "));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    // The kernel has not counted the pages that are still in a processor's batch.
    let most = ["page cache: 3.", "page cache: 4"].iter();
    assert!(
        most.into_iter().any(|it| line.starts_with(it)) && line.contains("M of the program"),
        "{line}"
    );
    assert!(line.contains(" 0 after the eviction"), "{line}");
}
