//! Tests of `nowait run --keep-cache` where no control group can be made: the preload library surveys the files that the
//! program opens.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::hostile::hostile;
use crate::program::{
    MIB, PAGE, Said, all_libraries, as_nobody, cold, compile, directory, evict, limited, nowait,
    prepare_libraries, run, run_with, touch, word,
};
use nowait::residency::page_map;
use slowdisk::{Filesystem, TestMount};
use test_support::pages::{all_reclaimed, are_reclaimed};
use test_support::repeat::{Excuse, repeat, unless_reclaimed};

/// `nowait run` with these options and this script, in a mount namespace in which there are no control groups.
fn surveys(options: &[&str], script: &str) -> Command {
    let mut run = nowait(["run", "--wait", "--keep-cache"]);
    run.args(options).args(["--", "sh", "-c", script]);
    without_groups(&run)
}

/// `nowait run` with this script, in a control group.
fn with_group(script: &str) -> Command {
    grouped(&[], script)
}

fn grouped(options: &[&str], script: &str) -> Command {
    let mut command = nowait(["run", "--wait", "--keep-cache"]);
    command.args(options).args(["--", "sh", "-c", script]);
    command.env("NOWAIT_LIBRARY_DIR", all_libraries());
    command
}

/// Returns true if this machine has memory control groups of version 1.
fn has_groups() -> bool {
    let has_groups = Path::new("/sys/fs/cgroup/memory/memory.force_empty").exists();
    if !has_groups {
        slowdisk::skip_or_fail("no memory control groups of version 1");
    }
    has_groups
}

fn without_groups(command: &Command) -> Command {
    let mut outer = Command::new("unshare");
    let hide = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
    outer.args(["--mount", "sh", "-c", hide, "sh"]);
    outer.arg(command.get_program()).args(command.get_args());
    outer.env("NOWAIT_LIBRARY_DIR", all_libraries());
    outer
}

/// Returns true if the tests can be run: they hide the control groups.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        slowdisk::skip_or_fail("not root");
    }
    is_root
}

/// The numbers of the resident pages of a file.
fn pages(path: &Path) -> BTreeSet<u64> {
    let file = File::open(path).unwrap();
    let map = page_map(&file, 0..u64::MAX).unwrap().known();
    let map = map.expect("residency");
    let runs = map
        .resident()
        .flat_map(|range| range.start / PAGE..range.end.div_ceil(PAGE));
    runs.collect()
}

/// Files with their contents and their residency, and the count of pages that were reclaimed before.
struct Files(Vec<(PathBuf, Vec<u8>, BTreeSet<u64>)>, u64);

impl Files {
    fn new(paths: impl IntoIterator<Item = PathBuf>) -> Files {
        let files = paths.into_iter().map(|path| {
            let bytes = fs::read(&path).unwrap();
            (path, bytes, BTreeSet::new())
        });
        Files(files.collect(), all_reclaimed())
    }

    /// Makes random pages resident.
    fn arrange(&mut self, random: &mut Random) {
        for (path, bytes, _) in &self.0 {
            evict(path);
            let count = (bytes.len() as u64).div_ceil(PAGE);
            for _ in 0..random.below(4) {
                let first = random.below(count.max(1));
                let end = (first + 1 + random.below(count / 2 + 1)).min(count);
                touch(path, first * PAGE..(end * PAGE).min(bytes.len() as u64));
            }
        }
        self.note();
    }

    /// Notes which pages are resident, and how many were reclaimed.
    fn note(&mut self) {
        self.1 = all_reclaimed();
        for (path, _, resident) in &mut self.0 {
            *resident = pages(path);
        }
    }

    /// Checks that the pages are resident after a program that were resident before, and no others. `run` arranges the files and
    /// runs the program. It is repeated if the kernel may have reclaimed the pages that are gone.
    fn stay_as_they_are(&mut self, what: &str, mut run: impl FnMut(&mut Files)) {
        const TRIES: usize = 5;
        let mut gone = Ok(());
        for _ in 0..TRIES {
            run(self);
            gone = self.compare(what);
            if gone.is_ok() {
                return;
            }
            eprintln!("{what}: repeated: {gone:?}");
        }
        panic!("{what}: {TRIES} times: {gone:?}");
    }

    /// Compares the files with what they were. The error names pages that are gone, and that the kernel may have reclaimed: some
    /// machines do that without a shortage of memory (DAMON). No proof is left if the program has then read such a page, and
    /// `nowait run` has evicted it.
    fn compare(&self, what: &str) -> Result<(), String> {
        let mut compared = Ok(());
        for (path, bytes, resident) in &self.0 {
            let now = pages(path);
            let more: Vec<_> = now.difference(resident).collect();
            assert!(more.is_empty(), "{what}: {path:?} has more pages: {more:?}");
            let gone = resident - &now;
            if !are_reclaimed(path, gone.iter().copied(), u64::MAX) {
                let text = format!("{path:?}: pages are gone: {gone:?}");
                let reclaimed = all_reclaimed() - self.1;
                assert!(reclaimed >= gone.len() as u64, "{what}: {text}");
                compared = Err(text);
            }
            assert_eq!(*bytes, fs::read(path).unwrap(), "{what}: {path:?}");
        }
        compared
    }
}

#[derive(Clone)]
struct Random(u64);

impl Random {
    /// Another one, which makes the same choices each time that it is cloned.
    fn split(&mut self) -> Random {
        Random(self.below(u64::MAX))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Checks that the pages `before` are among those of `now`, except those that the kernel has reclaimed.
fn assert_are_kept(
    path: &Path,
    before: &BTreeSet<u64>,
    now: &BTreeSet<u64>,
    reclaimed: u64,
    what: &str,
) {
    let gone = before - now;
    let is_right = are_reclaimed(path, gone.iter().copied(), reclaimed);
    assert!(is_right, "{what}: {path:?}: pages are gone: {gone:?}");
}

fn run_well(command: &mut Command) -> Said {
    let said = run(command);
    assert_eq!(said.code, Some(0), "{said:?}");
    said
}

/// Random commands, for several processes at the same time. Each writes files of its own.
fn random_script(random: &mut Random, names: &[&str], writes: bool) -> String {
    let mut script = String::new();
    for process in 0..3 {
        script.push('(');
        for step in 0..6 {
            let name = names[random.below(names.len() as u64) as usize];
            let (skip, count) = (random.below(600), 1 + random.below(600));
            let command = match random.below(if writes { 7 } else { 6 }) {
                0 => format!("cat {name} >/dev/null"),
                1 => format!("cat <{name} >/dev/null"),
                2 => format!("dd if={name} bs=4k skip={skip} count={count} of=/dev/null"),
                3 => format!("tail -c {} {name} >/dev/null", count * 100),
                4 => format!("cp {name} out-{process}-{step}"),
                5 => format!(
                    "exec 3<{name}; head -c {} <&3 >/dev/null; exec cat <&3 >/dev/null",
                    count * 99
                ),
                // The same bytes are written again.
                _ => format!(
                    "dd if={name} bs=4k skip={skip} count={count} of=part-{process}; \
                     dd if=part-{process} bs=4k seek={skip} of={name} conv=notrunc; rm part-{process}"
                ),
            };
            script.push_str(&command);
            script.push_str("; ");
        }
        script.push_str(") 2>/dev/null & ");
    }
    script + "wait"
}

fn by_surveys(script: &str) -> Command {
    surveys(&[], script)
}

/// Makes a command.
type Mechanism = fn(&str) -> Command;

const SURVEYS: Mechanism = by_surveys;
const GROUP: Mechanism = with_group;

/// `nowait run` waits this long for pages that are not yet written. On a busy machine they may stay.
const LONGEST: Duration = Duration::from_secs(10);

/// Runs a test again that has failed, if it took so long that written pages may have been given up.
fn unless_slow(test: impl Fn()) {
    repeat("a test of written files", &[Excuse::Took(LONGEST)], || {
        catch_unwind(AssertUnwindSafe(&test))
    });
}

fn random_use(at: &Path, writes: bool, command: Mechanism) {
    let seed = RandomState::new().hash_one(());
    let mut random = Random(seed);
    let names = ["a", "b", "c", "empty", "sparse"];
    for (name, size) in [("a", 5 * MIB + 77), ("b", 40 * MIB), ("c", 5), ("empty", 0)] {
        cold(at.join(name), size);
    }
    let sparse = File::create(at.join("sparse")).unwrap();
    sparse.set_len(MIB).unwrap();
    rustix::io::pwrite(&sparse, b"text", MIB / 2).unwrap();
    sparse.sync_all().unwrap();
    let mut files = Files::new(names.map(|name| at.join(name)));
    for _ in 0..3 {
        let script = random_script(&mut random, &names, writes);
        let what = format!("seed {seed}, {script}");
        let arrangement = random.split();
        files.stay_as_they_are(&what, |files| {
            files.arrange(&mut arrangement.clone());
            let begun = Instant::now();
            run_well(command(&script).current_dir(at));
            let may_be_dirty = begun.elapsed() >= LONGEST;
            for entry in fs::read_dir(at).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy();
                if name.starts_with("out-") {
                    let pages = pages(&path);
                    assert!(
                        pages.is_empty() || may_be_dirty,
                        "{what}: {path:?} has {pages:?}"
                    );
                    fs::remove_file(&path).unwrap();
                }
            }
            if may_be_dirty {
                files.note();
            }
        });
    }
}

#[test]
fn the_cache_is_as_before_after_random_use_on_ext4() {
    if is_root() {
        random_use(mounted!(Filesystem::Ext4).path(), true, SURVEYS);
    }
}

#[test]
fn the_cache_is_as_before_after_random_use_on_xfs() {
    if is_root() {
        let disk = mounted!(Filesystem::Xfs);
        let large = pages_of_large_folios(disk.path());
        assert!(large.is_none_or(|pages| pages > 1000), "{large:?}");
        random_use(disk.path(), true, SURVEYS);
    }
}

/// The number of pages in folios of several pages, of a file of 2,048 pages that was read in order.
/// `None` if this kernel does not tell.
fn pages_of_large_folios(at: &Path) -> Option<u64> {
    let here = directory();
    let counts = compile("cc", "folios.c", &[], here.path());
    let file = cold(at.join("large"), 8 * MIB);
    fs::read(&file).unwrap();
    let said = run(Command::new(counts).arg(&file));
    fs::remove_file(file).unwrap();
    let text = String::from_utf8(said.out).unwrap();
    (said.code == Some(0)).then(|| text.trim().parse().unwrap())
}

#[test]
fn the_cache_is_as_before_after_random_use_in_a_control_group() {
    if is_root() && has_groups() {
        random_use(mounted!(Filesystem::Ext4).path(), false, GROUP);
    }
}

/// A file of the lower layer that is written is copied, before it can be surveyed.
#[test]
fn the_cache_is_as_before_after_random_use_on_overlayfs() {
    if is_root() {
        let overlay = TestMount::overlay(mounted!(Filesystem::Ext4)).expect("an overlay");
        random_use(overlay.path(), false, SURVEYS);
    }
}

#[test]
fn real_programs_leave_the_cache_as_it_was() {
    if is_root() {
        real_programs(SURVEYS, &PROGRAMS);
    }
}

#[test]
fn real_programs_in_a_control_group_leave_the_cache_as_it_was() {
    if is_root() && has_groups() {
        real_programs(GROUP, &PROGRAMS);
        real_programs(GROUP, &[RESTIC]);
    }
}

/// Go programs make system calls without the C library. What restic reads cannot be surveyed.
#[test]
fn restic_makes_the_same_backup_where_its_calls_are_not_seen() {
    if !is_root() {
        return;
    }
    if !is_there(RESTIC) {
        return;
    }
    let directory = directory();
    let at = directory.path();
    fs::create_dir_all(at.join("tree/below")).unwrap();
    let paths = (0..50).map(|n| cold(at.join(format!("tree/below/{n}")), n * 100));
    let paths: Vec<PathBuf> = paths.collect();
    fs::create_dir(at.join("out")).unwrap();
    let alone = nowait(["run", "--wait", "--keep-cache", "--", "restic", "version"]);
    let line = run_well(&mut without_groups(&alone)).err;
    assert!(line.contains("is written in Go") && line.contains("the page cache is not kept"));
    let (_, _, script) = RESTIC;
    let script = format!("{script} && $RESTIC restore latest --target out/to");
    run_well(prepared(&mut by_surveys(&script), at));
    for path in paths {
        let name = path.strip_prefix(at).unwrap();
        assert_eq!(
            fs::read(&path).unwrap(),
            fs::read(at.join("out/to").join(name)).unwrap()
        );
    }
}

/// A name, a Debian package, and a script that reads a tree and writes to a directory out.
type Program = (&'static str, &'static str, &'static str);

const PROGRAMS: [Program; 7] = [
    ("tar", "tar", "tar -cf out/tar tree"),
    ("cp", "coreutils", "cp -a tree out/cp"),
    ("rsync", "rsync", "rsync -a tree/ out/rsync/"),
    ("grep", "grep", "! grep -rc zzz tree >/dev/null"),
    (
        "sha256sum",
        "coreutils",
        "find tree -type f | xargs -n 50 sha256sum >/dev/null",
    ),
    (
        "dd",
        "coreutils",
        "dd if=tree/large iflag=nocache of=/dev/null",
    ),
    (
        "borg",
        "borgbackup",
        "borg init -e none out/borg; borg create out/borg::a tree",
    ),
];

const RESTIC: Program = ("restic", "restic", "$RESTIC init && $RESTIC backup tree");

fn is_there((name, package, _): Program) -> bool {
    let found = run(Command::new("sh").args(["-c", &format!("command -v {name}")]));
    if found.code != Some(0) {
        slowdisk::skip_or_fail(format!("{name} is missing (Debian package {package})"));
    }
    found.code == Some(0)
}

/// The command in a directory, with the variables of the scripts.
fn prepared<'a>(command: &'a mut Command, at: &Path) -> &'a mut Command {
    command
        .current_dir(at)
        .env("BORG_BASE_DIR", at.join("borg"))
        .env("RESTIC_PASSWORD", "test")
        .env(
            "RESTIC",
            "restic -q -r out/restic --cache-dir out/restic-cache",
        )
}

fn real_programs(made: Mechanism, programs: &[Program]) {
    let directory = directory();
    let at = directory.path();
    fs::create_dir_all(at.join("tree/below")).unwrap();
    let mut paths = vec![cold(at.join("tree/large"), 30 * MIB)];
    paths.extend((0..300).map(|n| cold(at.join(format!("tree/below/{n}")), n * 100)));
    let mut files = Files::new(paths);
    let mut random = Random(1);
    for &program in programs {
        let (name, _, script) = program;
        if !is_there(program) {
            continue;
        }
        let arrangement = random.split();
        repeat(name, &[Excuse::Took(LONGEST)], || {
            files.stay_as_they_are(name, |files| {
                let _ = fs::remove_dir_all(at.join("out"));
                fs::create_dir(at.join("out")).unwrap();
                files.arrange(&mut arrangement.clone());
                run_well(prepared(&mut made(script), at));
            });
            let script = "find out -type f -size +0 | xargs -r \"$0\" fincore -b -n -o res";
            let words = ["-c", script, env!("CARGO_BIN_EXE_nowait")];
            let resident = run_well(Command::new("sh").args(words).current_dir(at));
            let bytes: u64 = resident
                .text()
                .split_whitespace()
                .map(|it| it.parse::<u64>().unwrap())
                .sum();
            match bytes {
                0 => Ok(()),
                _ => Err(resident),
            }
        });
    }
}

/// Both mechanisms: the control group, if there is one, and surveys.
#[test]
fn advice_of_the_program_does_not_evict_pages_that_were_resident() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let file = cold(directory.path().join("file"), 4 * MIB);
    let mut files = Files::new([file.clone()]);
    let script = format!(
        "dd if={0} iflag=nocache count=0 && dd if={0} iflag=nocache of=/dev/null",
        word(&file)
    );
    for made in [GROUP, SURVEYS] {
        files.stay_as_they_are(&script, |files| {
            files.arrange(&mut Random(3));
            touch(&file, 0..MIB);
            files.note();
            run_well(&mut made(&script));
        });
    }
    // The errors are those of the call. The script fails, since a pipe takes no advice.
    let pipe = "true | dd iflag=nocache count=0";
    let said = run(&mut surveys(&[], pipe));
    assert_eq!(
        said.code,
        run(Command::new("sh").args(["-c", pipe])).code,
        "{said:?}"
    );
}

#[test]
fn files_that_are_moved_removed_and_mapped_are_evicted() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let at = directory.path();
    let mut random = Random(2);
    cold(at.join("a"), 2 * MIB);
    let mut files = Files::new([at.join("a")]);
    let maps = compile("cc", "maps.c", &["-std=gnu11"], at);
    for script in [
        "cat a >/dev/null; mv a b; mv b a",
        "cp a new; mv new other; rm other",
        "cat a >new; cat new >/dev/null; mkdir d; mv new d/new; rm -r d",
        "truncate -s 3M a; cat a >/dev/null; truncate -s 2M a; cat a >/dev/null",
        "exec 3<a; sleep 0.1; (exec cat <&3 >/dev/null)",
        &format!("{} a", word(&maps)),
    ] {
        let arrangement = random.split();
        files.stay_as_they_are(script, |files| {
            files.arrange(&mut arrangement.clone());
            run_well(surveys(&[], script).current_dir(at));
        });
    }
}

/// The copies end in the same way, and what was written is evicted.
#[test]
fn a_full_disk_is_reported_by_the_program() {
    unless_slow(|| {
        if !is_root() {
            return;
        }
        let mount = mounted!(Filesystem::Ext4);
        let at = mount.path();
        let paths = (0..5).map(|n| cold(at.join(format!("f{n}")), MIB));
        let mut files = Files::new(paths.collect::<Vec<_>>());
        let fill = "dd if=/dev/zero of=fill bs=1M 2>/dev/null; truncate -s -3M fill; sync fill";
        run(Command::new("sh").args(["-c", fill]).current_dir(at));
        let script = "mkdir -p out; cp f* out";
        let alone = run(Command::new("sh").args(["-c", script]).current_dir(at));
        assert!(alone.err.contains("No space left"), "{alone:?}");
        for made in [SURVEYS, GROUP] {
            files.stay_as_they_are("full disk", |files| {
                fs::remove_dir_all(at.join("out")).unwrap();
                File::open(at).unwrap().sync_all().unwrap();
                files.arrange(&mut Random(8));
                let said = run(made(script).current_dir(at));
                assert_eq!((said.code, &said.err), (alone.code, &alone.err));
                for entry in fs::read_dir(at.join("out")).unwrap() {
                    let path = entry.unwrap().path();
                    assert_eq!(pages(&path), BTreeSet::new(), "{path:?}");
                }
            });
        }
    });
}

/// Pages that both read first may go. The others stay, and all bytes are those that were written.
#[test]
fn another_process_uses_the_same_files_meanwhile() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let at = directory.path();
    let paths = ["a", "b", "c"].map(|name| cold(at.join(name), 3 * MIB));
    let mut files = Files::new(paths);
    let maps = compile("cc", "maps.c", &["-std=gnu11"], at);
    fs::copy(at.join("a"), at.join("copy")).unwrap();
    let other = format!(
        "while :; do cat b >/dev/null; dd if=copy of=a bs=64k conv=notrunc 2>/dev/null; {} c; done",
        word(&maps)
    );
    let script = "for n in $(seq 30); do cat a b c >out; dd if=out of=a bs=64k count=48 conv=notrunc; done 2>/dev/null; \
                  cat a b c | cmp - out";
    for made in [SURVEYS, GROUP] {
        files.arrange(&mut Random(9));
        let mut process = Command::new("sh");
        process
            .args(["-c", &other])
            .stdout(Stdio::null())
            .process_group(0);
        let mut process = process.current_dir(at).spawn().unwrap();
        run_well(made(script).current_dir(at));
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process_group(pid, rustix::process::Signal::KILL).unwrap();
        process.wait().unwrap();
        let kept = |(path, bytes, resident): &(PathBuf, Vec<u8>, BTreeSet<u64>)| {
            let now = pages(path);
            assert_are_kept(path, resident, &now, files.1, script);
            assert_eq!(*bytes, fs::read(path).unwrap(), "{path:?}");
        };
        files.0.iter().for_each(kept);
    }
}

/// A file is in use after the descriptor is closed by which it was opened.
#[test]
fn files_with_several_descriptors_are_evicted_when_all_are_closed() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let at = directory.path();
    let sizes = [20_000, 70 * PAGE, 3 * MIB, 9 * MIB + 1];
    let paths = sizes.map(|size| cold(at.join(format!("f{size}")), size));
    let mut files = Files::new(paths);
    let mut random = Random(6);
    let program = compile("cc", "descriptors.c", &["-pthread"], at);
    for how in [
        "close",
        "fdopen",
        "close_range",
        "syscall_close",
        "dup",
        "dup2",
        "dup3",
        "dup_fails",
        "fcntl",
        "syscall_dup",
        "fopen",
        "freopen",
        "handle",
        "open",
        "openat",
        "openat2",
        "reopen",
        "sendmsg",
        "sendmmsg",
        "mmap",
        "exec",
        "fork",
        "vfork",
        "clone",
        "syscall",
        "posix_spawn",
        "threads",
    ] {
        let arrangement = random.split();
        files.stay_as_they_are(how, |files| {
            files.arrange(&mut arrangement.clone());
            let script = format!("{} {how} f*", word(&program));
            run_well(surveys(&[], &script).current_dir(at));
        });
    }
}

#[test]
fn another_file_with_the_number_of_a_descriptor_stays() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let at = directory.path();
    let program = compile("cc", "descriptors.c", &["-pthread"], at);
    let mut files = Files::new(["cold", "resident"].map(|name| cold(at.join(name), 20_000)));
    let script = format!("{} replace cold resident", word(&program));
    files.stay_as_they_are("replace", |files| {
        evict(&at.join("cold"));
        touch(&at.join("resident"), 0..20_000);
        files.note();
        run_well(surveys(&[], &script).current_dir(at));
    });
}

#[test]
fn a_file_that_gets_a_name_when_it_is_written_is_evicted() {
    unless_slow(|| {
        if !is_root() {
            return;
        }
        let directory = directory();
        let at = directory.path();
        let program = compile("cc", "descriptors.c", &["-pthread"], at);
        let mut files = Files::new(["f1", "f2"].map(|name| cold(at.join(name), 300_000)));
        files.stay_as_they_are("link", |files| {
            files.arrange(&mut Random(3));
            let script = format!("rm -f copy-*; {} link f*", word(&program));
            run_well(surveys(&[], &script).current_dir(at));
            for (path, bytes, _) in &files.0 {
                let name = path.file_name().unwrap().to_str().unwrap();
                let copy = at.join(format!("copy-{name}"));
                assert_eq!(pages(&copy), BTreeSet::new());
                assert_eq!(fs::read(&copy).unwrap(), *bytes);
            }
        });
    });
}

#[test]
fn files_with_long_paths_are_evicted() {
    unless_slow(|| {
        if !is_root() {
            return;
        }
        let directory = directory();
        let at = directory.path();
        let deep = (0..9).fold(PathBuf::from("d"), |path, n| {
            path.join(format!("{n}").repeat(100))
        });
        fs::create_dir_all(at.join(&deep)).unwrap();
        let sizes = [20_000, 300_000, 9 * MIB];
        let paths = sizes.map(|size| cold(at.join(&deep).join(format!("f{size}")), size));
        let mut files = Files::new(paths);
        let (relative, absolute) = (word(&deep), at.join(&deep));
        for script in [
            format!("cat {relative}/f* >/dev/null"),
            format!("cat {}/f* >/dev/null", word(&absolute)),
            format!("cd {relative}; cat f* >/dev/null; cat f* >new"),
        ] {
            files.stay_as_they_are(&script, |files| {
                let _ = fs::remove_file(absolute.join("new"));
                files.arrange(&mut Random(4));
                run_well(surveys(&[], &script).current_dir(at));
                let new = absolute.join("new");
                assert!(!new.exists() || pages(&new).is_empty());
            });
        }
    });
}

/// The root directories of new filesystems have the same inode number.
#[test]
fn directories_of_several_filesystems_are_told_apart() {
    if !is_root() {
        return;
    }
    let [one, other] = [mounted!(Filesystem::Ext4), mounted!(Filesystem::Ext4)];
    let paths = (0..20).map(|n| cold(one.path().join(format!("f{n}")), 300_000));
    let mut files = Files::new(paths.collect::<Vec<_>>());
    cold(one.path().join("first"), 20_000);
    cold(other.path().join("second"), 20_000);
    let script = format!(
        "cd {}; mkfifo fifo; cat first fifo f? f?? >/dev/null & cd {}; sleep 0.1; exec 3>{0}/fifo; cat second;          sleep 0.1; exec 3>&-; wait; rm {0}/fifo",
        word(one.path()),
        word(other.path())
    );
    files.stay_as_they_are(&script, |files| {
        for (path, _, _) in &files.0 {
            evict(path);
            touch(path, 100_000..200_000);
        }
        for path in [one.path().join("first"), other.path().join("second")] {
            evict(&path);
        }
        files.note();
        run_well(&mut surveys(&[], &script));
    });
}

/// stat(2) and proc(5) have different devices for files of btrfs.
#[test]
fn a_file_of_btrfs_that_is_mapped_is_evicted_when_it_is_unmapped() {
    if !is_root() {
        return;
    }
    let disk = mounted!(Filesystem::Btrfs);
    let here = directory();
    let maps = compile("cc", "maps.c", &["-std=gnu11"], here.path());
    let file = cold(disk.path().join("file"), 4 * MIB);
    let mut files = Files::new([file.clone()]);
    files.stay_as_they_are("maps", |files| {
        files.arrange(&mut Random(5));
        run_well(&mut surveys(
            &[],
            &format!("{} {}", word(&maps), word(&file)),
        ));
    });
}

#[test]
fn a_hole_of_any_size_is_surveyed_at_once() {
    if !is_root() {
        return;
    }
    let disk = mounted!(Filesystem::Xfs);
    let path = disk.path().join("sparse");
    let file = File::create_new(&path).unwrap();
    let ends = [0, i64::MAX as u64 / 3, i64::MAX as u64 - 2 * PAGE];
    for offset in ends {
        rustix::io::pwrite(&file, &[1; PAGE as usize], offset / PAGE * PAGE).unwrap();
    }
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    touch(&path, 0..PAGE);
    let script = format!(
        "head -c 3000000 {0} >/dev/null; tail -c 5000 {0} >/dev/null",
        word(&path)
    );
    run_well(&mut surveys(&[], &script));
    let residency = nowait::residency::residency(&file, 0..u64::MAX).unwrap();
    assert_eq!(residency.known().unwrap().cached, 1);
}

/// A file of 80 MiB. Each window of it has a resident page.
fn partly_resident(at: &Path) -> Files {
    let path = at.join("file");
    let file = File::create(&path).unwrap();
    file.set_len(80 * MIB).unwrap();
    let mut files = Files(vec![(path, vec![0; 80 << 20], BTreeSet::new())], 0);
    touch_windows(&mut files);
    files
}

fn touch_windows(files: &mut Files) {
    let path = &files.0[0].0;
    evict(path);
    for window in 0..40 {
        touch(path, window * 2 * MIB..window * 2 * MIB + PAGE);
    }
    files.note();
}

/// A part in the middle of a large file is surveyed before it is read or written.
#[test]
fn each_way_to_read_or_write_a_part_of_a_large_file_leaves_the_cache_as_it_was() {
    if !is_root() {
        return;
    }
    let disk = mounted!(Filesystem::Ext4);
    let here = directory();
    let windows = compile("cc", "windows.c", &["-std=gnu11"], here.path());
    let table = run_well(&mut Command::new(&windows));
    let names: Vec<&str> = table.text().lines().collect();
    let source = include_str!("../../../nowait-ahead/src/calls/transfer.rs");
    let name = |line: &'static str| line.strip_prefix("    fn ")?.split_once('(');
    for (name, _) in source.lines().filter_map(name) {
        assert!(names.contains(&name), "windows.c has no {name}");
    }
    let mut files = partly_resident(disk.path());
    for name in names {
        files.stay_as_they_are(name, |files| {
            touch_windows(files);
            let script = format!("{} {} {name}", word(&windows), word(&files.0[0].0));
            run_well(&mut surveys(&[], &script));
        });
    }
}

/// The number of questions for the residency of a file.
#[test]
fn a_file_of_any_size_is_opened_with_the_survey_of_one_window() {
    if !is_root() {
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return slowdisk::skip_or_fail("strace is missing");
    }
    let disk = mounted!(Filesystem::Ext4);
    let here = directory();
    let windows = compile("cc", "windows.c", &["-std=gnu11"], here.path());
    let partly = partly_resident(disk.path());
    let sparse = disk.path().join("sparse");
    let file = File::create(&sparse).unwrap();
    file.set_len(1 << 40).unwrap();
    for part in 0..1000 {
        touch(
            &sparse,
            (part << 30) + 5 * MIB..(part << 30) + 5 * MIB + PAGE,
        );
    }
    for path in [&partly.0[0].0, &sparse] {
        let trace = here.path().join("trace");
        let script = format!(
            "strace -qq -o {} {} {} open",
            word(&trace),
            word(&windows),
            word(path)
        );
        run_well(&mut surveys(&[], &script));
        let trace = fs::read_to_string(&trace).unwrap();
        // An older strace(1) does not know the name.
        let is_question = |line: &&str| {
            ["cachestat", "syscall_0x1c3", "mincore"]
                .iter()
                .any(|it| line.contains(it))
        };
        let questions = trace.lines().filter(is_question).count();
        assert!(
            (1..20).contains(&questions),
            "{path:?}: {questions}: {trace}"
        );
    }
}

#[test]
fn a_copy_in_one_call_is_whole() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let at = directory.path();
    let copies = compile("cc", "copies.c", &["-std=gnu11"], at);
    let from = cold(at.join("from"), 20 * MIB + 5);
    fs::create_dir(at.join("full")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=12M none full; {} from to; umount full",
        word(&copies)
    );
    let mut direct = Command::new("unshare");
    let direct = run_well(
        direct
            .args(["--mount", "sh", "-c", &script])
            .current_dir(at),
    );
    for made in [SURVEYS, GROUP] {
        fs::remove_file(at.join("to")).unwrap();
        let said = run_well(made(&script).current_dir(at));
        assert_eq!(said.text(), direct.text());
        let bytes = fs::read(at.join("to")).unwrap();
        assert!(bytes[..20 * MIB as usize + 5] == fs::read(&from).unwrap());
    }
}

#[test]
fn a_program_keeps_its_leases() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let at = directory.path();
    let leases = compile("cc", "leases.c", &["-std=gnu11"], at);
    let sizes = [20_000, 300_000, 20_001, 40 * MIB, 41 * MIB];
    let paths = sizes.map(|size| cold(at.join(format!("f{size}")), size));
    let mut files = Files::new(paths);
    let script = format!("{} f*", word(&leases));
    files.stay_as_they_are("leases", |files| {
        files.arrange(&mut Random(6));
        let said = run_well(surveys(&[], &script).current_dir(at));
        assert_eq!(said.text(), "0 1\n".repeat(sizes.len()));
    });
}

/// The data of the file is not written for seconds. `nowait run` waits for that to evict it.
#[test]
fn a_program_unmounts_a_filesystem_that_it_has_written_to() {
    if !is_root() {
        return;
    }
    let mount = mounted!(Filesystem::Ext4);
    let script = format!(
        "echo text >{0}/file; sleep 0.1; umount {0}",
        word(mount.path())
    );
    run_well(&mut surveys(&[], &script));
    // One that is in use is not unmounted.
    let script = format!("exec 3>{0}/file; umount {0}", word(mount.path()));
    let said = run(&mut surveys(&[], &script));
    assert!(
        said.code == Some(32) && said.err.contains("busy"),
        "{said:?}"
    );
}

/// Unmounts a filesystem without the library, and tries it again: the helper has a file open for a moment.
const UNMOUNT: &str = "unmount() { for n in $(seq 500); do \
                       LD_PRELOAD= umount \"$1\" 2>/dev/null && return; sleep 0.01; done; umount \"$1\"; }; ";

/// umount(8) is setuid, and loads no library. The filesystem was mounted before.
#[test]
fn a_program_that_loads_no_library_unmounts_a_filesystem() {
    if !is_root() {
        return;
    }
    let mount = mounted!(Filesystem::Ext4);
    cold(mount.path().join("read"), 9 * MIB);
    let script = format!(
        "{UNMOUNT} cd {0}; cat read >written; cd /; unmount {0}",
        word(mount.path())
    );
    run_well(&mut surveys(&[], &script));
}

/// No file is held there, so it is found by its name.
#[test]
fn files_of_another_mount_are_evicted_when_their_names_have_changed() {
    unless_slow(|| {
        if !is_root() {
            return;
        }
        let mount = mounted!(Filesystem::Ext4);
        let at = mount.path();
        let from = cold(at.join("from"), 300_000);
        let program = word(&compile("cc", "descriptors.c", &["-pthread"], at)).to_owned();
        let mut files = Files::new([from]);
        let script = format!(
            "rm -fr a b c; mkdir a b c; \
                  for n in $(seq 30); do cp from a/$n; mv a/$n b/$n; ln b/$n c/$n; rm b/$n; done; \
                  cat from >x; mv x c/x; cat from >c/replaced; cat from >y; mv y c/replaced; \
                  for how in exchange syscall_exchange; do \
                  cp from c/$how; cp from a/$how; {program} $how c/$how a/$how; done"
        );
        files.stay_as_they_are(&script, |files| {
            files.arrange(&mut Random(5));
            run_well(surveys(&[], &script).current_dir(at));
            for entry in fs::read_dir(at.join("c")).unwrap() {
                let path = entry.unwrap().path();
                assert_eq!(pages(&path), BTreeSet::new(), "{path:?}");
            }
        });
    });
}

#[test]
fn a_program_unmounts_what_it_has_mounted() {
    if !is_root() {
        return;
    }
    slowdisk::require!(Filesystem::Ext4.available());
    let directory = directory();
    let at = directory.path();
    cold(at.join("file"), 300_000);
    let script = format!(
        "{UNMOUNT} truncate -s 64M image; mkfs.ext4 -q image; mkdir m; mount -o loop image m; \
         cp file m; cp file m/other; unmount m"
    );
    run_well(surveys(&[], &script).current_dir(at));
}

/// Both mechanisms.
#[test]
fn a_process_that_is_left_behind_uses_the_cache_as_without() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let at = directory.path();
    let left = compile("cc", "left.c", &["-std=gnu11"], at);
    let [read, dropped] = ["read", "dropped"].map(|name| cold(at.join(name), 20_000));
    let script = format!(
        "{} read dropped & while [ ! -e started ]; do sleep 0.01; done",
        word(&left)
    );
    for made in [SURVEYS, GROUP] {
        evict(&read);
        let reclaimed = all_reclaimed();
        for name in ["started", "go", "done"] {
            let _ = fs::remove_file(at.join(name));
        }
        let mut command = made(&script);
        run_well(command.current_dir(at));
        fs::write(at.join("go"), "").unwrap();
        crate::program::wait_until("the process ends", || at.join("done").exists());
        assert_eq!(pages(&dropped), BTreeSet::new());
        assert_are_kept(
            &read,
            &BTreeSet::from([0]),
            &pages(&read),
            reclaimed,
            "read",
        );
    }
}

/// The numbers of its threads are those of other threads outside.
#[test]
fn files_of_a_pid_namespace_are_evicted_and_other_processes_are_left_alone() {
    unless_slow(|| {
        if !is_root() {
            return;
        }
        let directory = directory();
        let at = directory.path();
        let sizes = [20_000, 300_000, 9 * MIB];
        let paths = sizes.map(|size| cold(at.join(format!("f{size}")), size));
        let mut files = Files::new(paths);
        let script = "unshare --pid --fork sh -c 'cat f* >/dev/null; cat f* >new'";
        files.stay_as_they_are(script, |files| {
            files.arrange(&mut Random(4));
            let said = run_well(surveys(&["--stats"], script).current_dir(at));
            assert!(!said.err.contains("not known"), "{said:?}");
            assert_eq!(pages(&at.join("new")), BTreeSet::new());
        });
    });
}

/// The shell that starts `nowait run` opens these files.
#[test]
fn standard_input_and_output_are_surveyed() {
    unless_slow(|| {
        if !is_root() {
            return;
        }
        let directory = directory();
        let from = cold(directory.path().join("from"), 2 * MIB);
        let to = directory.path().join("to");
        let mut files = Files::new([from.clone()]);
        files.stay_as_they_are("cat", |files| {
            files.arrange(&mut Random(4));
            let mut command = surveys(&[], "exec cat");
            command.stdin(File::open(&from).unwrap());
            let status = command.stdout(File::create(&to).unwrap()).status();
            assert!(status.unwrap().success());
            assert_eq!(pages(&to), BTreeSet::new());
            assert_eq!(fs::read(&to).unwrap(), files.0[0].1);
        });
        let mut command = surveys(&[], "read -r line <&5");
        let command = command.env("FROM", word(&from));
        files.stay_as_they_are("descriptor 5", |files| {
            files.arrange(&mut Random(4));
            let mut shell = Command::new("sh");
            let script = "exec 5<\"$FROM\"; exec \"$0\" \"$@\"";
            shell.args(["-c", script]).arg(command.get_program());
            shell.args(command.get_args());
            shell.envs(
                command
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
            run_well(&mut shell);
        });
    });
}

/// It has no name by which it could be opened.
#[test]
fn a_large_file_is_evicted_behind_its_reader_although_it_was_removed() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let at = directory.path();
    let file = File::open(cold(at.join("file"), 64 * MIB)).unwrap();
    let script = "exec 3<file; rm file; cat <&3 >/dev/null; >was-read; \
                  while [ ! -e go ]; do sleep 0.01; done";
    let mut command = surveys(&[], script);
    let mut run = command.current_dir(at).spawn().unwrap();
    crate::program::wait_until("the program has read the file", || {
        at.join("was-read").exists()
    });
    let resident = || {
        let map = page_map(&file, 0..u64::MAX).unwrap().known();
        let map = map.expect("residency");
        map.resident()
            .map(|range| range.end - range.start)
            .sum::<u64>()
    };
    crate::program::wait_until("the file is evicted", || resident() <= 8 * MIB);
    fs::write(at.join("go"), "").unwrap();
    assert!(run.wait().unwrap().success());
}

/// The files were surveyed under their old names.
#[test]
fn files_below_a_renamed_directory_are_evicted() {
    unless_slow(|| {
        if !is_root() {
            return;
        }
        let directory = directory();
        let at = directory.path();
        let from = cold(at.join("from"), 9 * MIB);
        let mut files = Files::new([from]);
        for script in [
            "mkdir -p t/below; cp from t/below; cp from t; mv t new",
            "mkdir -p t/below; cat from >t/below/file; mv t/below t/other; mv t new",
            "mkdir -p t/below; (cd t/below; cp ../../from .; mv ../../t ../../new; cp ../../from second)",
        ] {
            files.stay_as_they_are(script, |files| {
                let _ = fs::remove_dir_all(at.join("new"));
                files.arrange(&mut Random(3));
                run_well(surveys(&[], script).current_dir(at));
                let mut found = 0;
                let mut waiting = vec![at.join("new")];
                while let Some(path) = waiting.pop() {
                    if path.is_dir() {
                        waiting.extend(fs::read_dir(path).unwrap().map(|it| it.unwrap().path()));
                        continue;
                    }
                    found += 1;
                    assert_eq!(pages(&path), BTreeSet::new(), "{script}: {path:?}");
                }
                assert!(found > 0);
            });
        }
    });
}

/// The numbers of removed files are given to others.
#[test]
fn later_files_with_the_numbers_of_removed_ones_stay() {
    if !is_root() {
        return;
    }
    let mount = mounted!(Filesystem::Ext4);
    let at = mount.path();
    let script = "for n in $(seq 20); do head -c 100000 /dev/zero >a$n; done; rm a*; \
                  >removed; while [ ! -e made ]; do sleep 0.01; done";
    let mut command = surveys(&[], script);
    let mut run = command.current_dir(at).spawn().unwrap();
    crate::program::wait_until("files were removed", || at.join("removed").exists());
    let paths = (0..20).map(|n| cold(at.join(format!("b{n}")), 100_000));
    let paths: Vec<PathBuf> = paths.collect();
    let mut files = Files::new(paths.clone());
    for path in &paths {
        touch(path, 0..100_000);
    }
    files.note();
    fs::write(at.join("made"), "").unwrap();
    assert!(run.wait().unwrap().success());
    let compared = files.compare("removed");
    assert!(compared.is_ok(), "{compared:?}");
}

/// The program opens some of the files that are read ahead of it.
#[test]
fn what_is_read_ahead_is_given_back() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let at = directory.path();
    fs::create_dir(at.join("tree")).unwrap();
    let paths = (0..400).map(|n| cold(at.join(format!("tree/f{n}")), 20_000));
    let mut files = Files::new(paths.collect::<Vec<_>>());
    let options = ["--stats", "--data", "--walk", "tree"];
    let script = "cat tree/f1* >/dev/null; sleep 1";
    let mut grouped = grouped(&options, script);
    let mut surveyed = surveys(&options, script);
    let mut commands = vec![("surveys", &mut surveyed)];
    if has_groups() {
        commands.push(("a group", &mut grouped));
    }
    for (what, command) in commands {
        let mut read = false;
        files.stay_as_they_are(what, |files| {
            files.arrange(&mut Random(7));
            let said = run_well(command.current_dir(at));
            read |= said.err.contains(" of ") && !said.err.contains("read ahead 0 of 0 files");
            assert!(said.err.contains(" left behind\n"), "{what}: {}", said.err);
        });
        assert!(read, "{what}: nothing was read ahead");
    }
}

#[test]
fn it_ends_with_a_program_that_writes_into_the_channel() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let hostile = hostile(directory.path());
    let file = cold(directory.path().join("file"), MIB);
    for what in ["marks", "number", "random", "events \"$1\" / /missing"] {
        let mut command = surveys(&["--stats"], &format!("\"$0\" {what}"));
        let said = run(command.args([&hostile, &file]));
        assert_eq!(said.code, Some(7), "{what}: {}", said.err);
    }
}

#[test]
fn few_descriptors_are_enough() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let at = directory.path();
    let paths = (0..100).map(|n| cold(at.join(format!("f{n}")), 20_000));
    let mut files = Files::new(paths.collect::<Vec<_>>());
    files.stay_as_they_are("20 descriptors", |files| {
        files.arrange(&mut Random(5));
        let mut command = surveys(
            &[],
            "sha256sum f* >/dev/null; mkdir out; cp f* out; rm -r out",
        );
        command.env("NOWAIT_LIBRARY_DIR", all_libraries());
        let mut command = without_environment(command);
        run_well(limited(&mut command, 20).current_dir(at));
    });
}

/// The command with its environment in its words: `limited` does not keep variables.
fn without_environment(command: Command) -> Command {
    let mut env = Command::new("env");
    for (name, value) in command.get_envs() {
        let value = value.unwrap().to_str().unwrap();
        env.arg(format!("{}={value}", name.to_str().unwrap()));
    }
    env.arg(command.get_program()).args(command.get_args());
    env
}

/// Copies the libraries to a directory that all users may read.
fn prepare_place(place: &Path) {
    for library in ["libnowait_ahead.so", "libnowait_aio.so"] {
        slowdisk::copy_program(all_libraries().join(library), place.join(library)).unwrap();
    }
    prepare_libraries(place);
}

#[test]
fn files_of_other_users_stay_as_they_are() {
    unless_reclaimed(|| {
        if !is_root() {
            return;
        }
        let directory = crate::program::open_directory();
        let file = directory.path().join("file");
        fs::write(&file, vec![1; 4 * MIB as usize]).unwrap();
        File::open(&file).unwrap().sync_all().unwrap();
        evict(&file);
        let script = format!("cat {} >/dev/null", word(&file));
        let (mut command, place) =
            as_nobody(["run", "--wait", "--keep-cache", "--", "sh", "-c", &script]);
        prepare_place(place.path());
        let said = run_well(command.env("NOWAIT_LIBRARY_DIR", place.path()));
        assert_eq!(said.err, "");
        assert!(
            pages(&file).len() as u64 * PAGE > 2 * MIB,
            "the file was evicted"
        );
    });
}

#[test]
fn a_program_with_a_filter_of_its_calls_runs() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let sandbox = compile("cc", "sandbox.c", &["-std=gnu11"], directory.path());
    fs::create_dir(directory.path().join("tree")).unwrap();
    for name in ["file1", "file2"] {
        fs::write(directory.path().join("tree").join(name), "text").unwrap();
    }
    for how in ["listen", "inherit"] {
        let script = format!("{} {how} tree tree", word(&sandbox));
        let mut direct = Command::new("sh");
        let direct = run(direct.args(["-c", &script]).current_dir(directory.path()));
        let said = run_with(surveys(&[], &script).current_dir(directory.path()), b"text");
        assert_eq!(
            (said.code, said.text()),
            (direct.code, direct.text()),
            "{how}: {said:?}"
        );
    }
}

#[test]
fn the_program_goes_on_if_the_helper_is_killed() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let file = cold(directory.path().join("file"), MIB);
    let script = format!(
        "helper=${{NOWAIT_SURVEY_CHANNEL#/proc/}}; kill -9 ${{helper%%/*}}; \
         for n in $(seq 1500); do : <{0}; : <{0}; : <{0}; done; cat {0}; exit 4",
        word(&file)
    );
    let said = run(&mut surveys(&[], &script));
    assert_eq!(said.code, Some(4), "{}", said.err);
    assert_eq!(said.out, fs::read(&file).unwrap());
}

#[test]
fn the_cache_is_as_before_if_the_program_is_killed() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let file = cold(directory.path().join("file"), 3 * MIB);
    let mut files = Files::new([file.clone()]);
    files.stay_as_they_are("kill -9", |files| {
        files.arrange(&mut Random(6));
        let status = surveys(&[], &format!("cat {} >/dev/null; kill -9 $$", word(&file))).status();
        assert_eq!(status.unwrap().signal(), Some(9));
    });
}

#[test]
fn one_line_says_why_the_cache_is_not_kept() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let built = compile("cc", "lists.c", &["-static"], directory.path());
    let run_static = nowait([
        "run",
        "--keep-cache",
        "--",
        word(&built),
        word(directory.path()),
    ]);
    let said = run(&mut without_groups(&run_static));
    assert_eq!(said.code, Some(7));
    let line = said.err.lines().next().unwrap_or_default();
    assert!(
        line.contains("is a static program") && line.contains("the page cache is not kept"),
        "{said:?}"
    );
    // A container has a filter of system calls.
    let notices = compile("cc", "notices.c", &["-std=gnu11"], directory.path());
    let mut filtered = Command::new(&notices);
    let words = [
        "run",
        "--wait",
        "--stats",
        "--keep-cache",
        "--",
        "echo",
        "text",
    ];
    filtered
        .args(["filtered", env!("CARGO_BIN_EXE_nowait")])
        .args(words);
    let said = run(&mut without_groups(&filtered));
    assert_eq!((said.code, said.text()), (Some(0), "text\n"), "{said:?}");
    let mut lines = said.err.lines();
    let line = lines.next().unwrap_or_default();
    assert!(
        line.contains("seccomp(2)") && line.ends_with("the page cache is not kept"),
        "{said:?}"
    );
    assert_eq!(lines.next(), None, "{said:?}");
}

#[test]
fn the_report_has_a_line_for_programs_whose_calls_are_not_seen() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let at = directory.path();
    let file = cold(at.join("file"), 4 * MIB);
    let maps = compile("cc", "maps.c", &["-std=gnu11", "-static"], at);
    let script = format!("sleep 3 | {} file wait", word(&maps));
    let said = run_well(surveys(&["--stats"], &script).current_dir(at));
    let line = said.err.lines().find(|it| it.contains("not known"));
    let line = line.unwrap_or_else(|| panic!("{said:?}"));
    assert!(
        line.contains("M or more that ") && line.contains(word(&maps)),
        "{line}"
    );
    // Programs that read much metadata, and libraries that are not cached.
    fs::create_dir(at.join("tree")).unwrap();
    (0..300).for_each(|n| drop(cold(at.join(format!("tree/{n}")), n)));
    for script in [
        "du -s tree",
        "find tree",
        "tar -cf a.tar tree",
        "python3 -c 'import json'",
    ] {
        evict(&file);
        let said = run_well(surveys(&["--stats"], script).current_dir(at));
        assert!(!said.err.contains("not known"), "{said:?}");
    }
}

/// The program changes the mode, so that its user can open the files no more.
#[test]
fn the_report_counts_files_whose_residency_is_not_known_any_more() {
    if !is_root() {
        return;
    }
    let directory = crate::program::open_directory();
    std::os::unix::fs::chown(directory.path(), Some(65534), None).unwrap();
    // Few are held by a descriptor.
    let script = format!(
        "ulimit -n 40; exec \"$0\" run --wait --keep-cache --stats -- sh -c 'cd {}; \
         for n in $(seq 50); do head -c 20000 /dev/zero >f$n; done; sleep 0.1; chmod 0 f*'",
        word(directory.path())
    );
    let (command, place) = as_nobody([""]);
    prepare_place(place.path());
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg(command.get_program());
    shell
        .uid(65534)
        .gid(65534)
        .env("NOWAIT_LIBRARY_DIR", place.path());
    let said = run_well(&mut shell);
    let unknown = said
        .err
        .lines()
        .find(|line| line.ends_with("not known any more"));
    let count = unknown.and_then(|line| line.split(' ').nth(3)?.parse::<u64>().ok());
    assert!(count.is_some_and(|count| count > 10), "{said:?}");
}

#[test]
fn the_report_has_a_line_for_each_mount() {
    unless_reclaimed(|| {
        if !is_root() {
            return;
        }
        let directory = directory();
        let file = cold(directory.path().join("file"), 4 * MIB);
        touch(&file, 0..MIB);
        let script = format!("cat {} >/dev/null", word(&file));
        let said = run_well(&mut surveys(&["--stats"], &script));
        let line = said
            .err
            .lines()
            .find(|line| line.starts_with("page cache of 1 file on /"));
        let line = line.unwrap_or_else(|| panic!("{said:?}"));
        assert!(
            line.contains("1M before") && line.contains("0 left behind"),
            "{line}"
        );
        assert!(!said.err.contains("read ahead"), "{said:?}");
        let nothing = run_well(&mut surveys(&["--stats"], "true"));
        assert_eq!(nothing.err, "page cache: no pages were added\n");
    });
}

#[test]
fn files_of_a_process_without_new_privileges_are_evicted() {
    unless_slow(|| {
        if !is_root() {
            return;
        }
        let directory = directory();
        let sizes = [20_000, 300_000, 9 * MIB];
        let paths = sizes.map(|size| cold(directory.path().join(format!("f{size}")), size));
        let mut files = Files::new(paths);
        let script = "setpriv --no-new-privs sh -c 'cat f* >/dev/null; cat f* >new'";
        files.stay_as_they_are(script, |files| {
            files.arrange(&mut Random(4));
            run_well(surveys(&[], script).current_dir(directory.path()));
            assert_eq!(pages(&directory.path().join("new")), BTreeSet::new());
        });
    });
}

/// It does not say that nothing was added if it has not looked.
#[test]
fn the_report_says_which_processes_it_does_not_know() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let at = directory.path();
    let file = cold(at.join("file"), 4 * MIB);
    let notices = compile("cc", "notices.c", &["-std=gnu11"], at);
    let filtered = format!("{} filtered cat file >/dev/null", word(&notices));
    // cat(1) lives for a second after it has read the file: the writer opens the FIFO when cat has opened it.
    let stays = |by: &str| {
        format!(
            "mkfifo p; {by} cat file p >/dev/null & exec 3>p; sleep 1; exec 3>&-; wait $! && rm p"
        )
    };
    let capabilities = stays("setpriv --bounding-set=-net_raw --inh-caps=-net_raw");
    let namespace = stays("unshare --user --map-root-user");
    for (script, why) in [
        (
            filtered.as_str(),
            "not all is known: a process had a filter of system calls",
        ),
        (
            &capabilities,
            "not all is known: a process had other rights",
        ),
        (&namespace, "no library sees its calls"),
    ] {
        evict(&file);
        let said = run_well(surveys(&["--stats"], script).current_dir(at));
        let is_said = said.err.lines().any(|it| it.contains(why));
        assert!(
            is_said && !said.err.contains("no pages"),
            "{script}: {said:?}"
        );
    }
}

#[test]
fn a_file_that_another_process_maps_is_waited_for_no_longer() {
    if !is_root() {
        return;
    }
    let directory = directory();
    let at = directory.path();
    let file = cold(at.join("file"), MIB);
    let maps = compile("cc", "maps.c", &["-std=gnu11"], at);
    let mut other = Command::new(maps);
    other
        .arg(&file)
        .arg("wait")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut other = other.spawn().unwrap();
    std::io::Read::read(other.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let before = pages(&file);
    run_well(&mut surveys(
        &[],
        &format!("cat {} >/dev/null", word(&file)),
    ));
    assert!(before.is_subset(&pages(&file)));
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
}
