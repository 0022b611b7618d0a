//! Tests of `nowait run` with programs of other projects: their output and the files that they write are the same as without
//! it, on each filesystem, with cold and with warm caches.
//!
//! `NOWAIT_RUN_FILES=100000` makes larger trees, and runs all programs on each filesystem. Without it, half of them run on
//! some.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::program::{Said, libraries, nowait, run};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use slowdisk::{Filesystem, ServedTree, SlowDisk, TestMount, require};
use tempfile::TempDir;

/// A program under test.
struct Program {
    name: &'static str,
    /// The programs that it needs, with their Debian packages.
    needs: &'static [(&'static str, &'static str)],
    /// A shell script that makes what the program needs besides the tree. It is not measured, and its files are not read ahead.
    prepare: &'static str,
    /// The shell script that is run with and without `nowait run`.
    script: &'static str,
    /// A shell script that reads what the program has written.
    afterwards: &'static str,
    compare: Compare,
    follow: Follow,
    runs: &'static [How],
}

/// The properties of the files in `$OUT` that are compared, besides the output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compare {
    Output,
    /// Names, types and contents.
    Contents,
    /// Also modes, owners and modification times.
    Metadata,
}

/// The way to follow the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follow {
    /// By the preload. The program calls stat(2).
    Stats,
    /// By the preload. The program calls no stat(2) that the preload sees.
    Opens,
    /// By `--walk`.
    Walk,
}

impl Program {
    const BASE: Program = Program {
        name: "",
        needs: &[],
        prepare: "",
        script: "",
        afterwards: "",
        compare: Compare::Output,
        follow: Follow::Stats,
        runs: &[How::Cold, How::Warm],
    };
    /// For programs that take seconds.
    const COLD: &[How] = &[How::Cold];
}

/// A script is run in the directory that has `tree`, and may write to `$OUT`, which is empty before, and on the same
/// filesystem if that is one that can be written.
const PROGRAMS: [Program; 16] = [
    Program {
        name: "ls",
        script: "ls -lR tree",
        ..Program::BASE
    },
    Program {
        name: "find",
        needs: &[("find", "findutils")],
        script: "find tree -ls",
        ..Program::BASE
    },
    Program {
        name: "du",
        script: "du -a tree",
        ..Program::BASE
    },
    Program {
        name: "tar",
        needs: &[("tar", "tar")],
        script: "tar -cf - tree",
        ..Program::BASE
    },
    Program {
        name: "rsync -n",
        needs: &[("rsync", "rsync")],
        script: "rsync -nai tree $OUT/",
        ..Program::BASE
    },
    Program {
        name: "rsync",
        needs: &[("rsync", "rsync")],
        script: "rsync -aH tree $OUT/",
        compare: Compare::Metadata,
        ..Program::BASE
    },
    Program {
        name: "git status",
        needs: &[("git", "git")],
        // `git gc --auto` would go on in the background after a commit of many files.
        prepare: "git init -q --bare $OUT/repo && git config --file $OUT/repo/config core.bare false
                  git config --file $OUT/repo/config gc.auto 0
                  git='git --git-dir=$OUT/repo --work-tree=tree'
                  eval $git add -A && eval $git commit -qm first && eval $git rm -rq --cached d3
                  eval $git update-index --cacheinfo 100644,$(echo other | git --git-dir=$OUT/repo hash-object -w --stdin),d4/f1",
        script: "git --git-dir=$OUT/repo --work-tree=tree status --porcelain",
        ..Program::BASE
    },
    Program {
        name: "git add",
        needs: &[("git", "git")],
        prepare: "git init -q --bare $OUT/repo && git config --file $OUT/repo/config core.bare false",
        script: "git --git-dir=$OUT/repo --work-tree=tree add -A",
        afterwards: "git --git-dir=$OUT/repo --work-tree=tree ls-files -s",
        ..Program::BASE
    },
    Program {
        name: "cp",
        script: "cp -a tree $OUT/",
        compare: Compare::Metadata,
        ..Program::BASE
    },
    Program {
        name: "rm",
        prepare: "cp -a tree doomed",
        // rm goes through more than 10,000 names by their inode numbers, which differ between copies.
        script: "removed=$(rm -rv doomed) && echo \"$removed\" | sort",
        afterwards: "ls -d doomed",
        ..Program::BASE
    },
    Program {
        name: "grep",
        needs: &[("grep", "grep")],
        script: "grep -r 'file 1.*[37]' tree",
        follow: Follow::Opens,
        ..Program::BASE
    },
    Program {
        name: "os.walk",
        needs: &[("python3", "python3")],
        script: "python3 -c '
import os
for top, names, files in os.walk(\"tree\"):
    for name in names + files:
        path = os.path.join(top, name)
        about = os.lstat(path)
        # A filesystem that is mounted again may have another device number.
        print(path, about[:2] + about[3:7], about.st_mtime_ns)
'",
        ..Program::BASE
    },
    Program {
        name: "make",
        needs: &[("make", "make"), ("gcc", "gcc")],
        script: "make -s -j2 -C tree/source OUT=$OUT && $OUT/program",
        compare: Compare::Contents,
        ..Program::BASE
    },
    Program {
        name: "restic",
        needs: &[("restic", "restic")],
        prepare: "test -e $OUT-restic || restic -r $OUT-restic init -q
                  mkdir -p $OUT/restic && cp -a $OUT-restic $OUT/restic/repository",
        script: "restic backup -q --ignore-inode tree",
        afterwards: "restic restore -q latest --target $OUT/to && mv $OUT/to/tree $OUT && rm -r $OUT/to $OUT/restic",
        compare: Compare::Metadata,
        follow: Follow::Walk,
        runs: Program::COLD,
    },
    Program {
        name: "borg",
        needs: &[("borg", "borgbackup")],
        prepare: "test -e $OUT-borg || borg init -e none $OUT-borg
                  rm -rf $OUT/borg-home && cp -a $OUT-borg $OUT/borg",
        script: "borg create $OUT/borg::archive tree",
        afterwards: "cd $OUT && borg extract borg::archive && rm -r borg borg-home",
        compare: Compare::Metadata,
        runs: Program::COLD,
        ..Program::BASE
    },
    Program {
        name: "a script",
        script: "for d in tree/d*; do test -d $d && (cd $d && stat -c '%n %s' *) | sort | tail -n 2; done; echo tree/*/f1",
        ..Program::BASE
    },
];

/// A directory with a tree, on a filesystem under test.
struct Place {
    /// The directory that has `tree`.
    root: PathBuf,
    /// The directory in which `$OUT` is made.
    out: PathBuf,
    kind: Kind,
    /// Programs are also run by `--learn`. The profiles are in this directory.
    is_learnt: bool,
    profiles: TempDir,
}

enum Kind {
    Mount(Box<TestMount>, Option<SlowDisk>),
    /// A FUSE mount, and the directory that it shows.
    Fuse(Option<ServedTree>, TempDir),
}

/// The time of a request of the slow disk, and of the FUSE mount.
const DISK: Duration = Duration::from_micros(200);
const FUSE: Duration = Duration::from_millis(5);

/// The number of files in the large directory.
fn files() -> usize {
    let files = std::env::var("NOWAIT_RUN_FILES").ok();
    files.map_or(1200, |files| {
        files.parse().expect("NOWAIT_RUN_FILES is a number")
    })
}

impl Place {
    /// A new filesystem. Those with a device are on a slow disk.
    fn on(filesystem: Filesystem) -> Place {
        let builder = TestMount::builder(filesystem).size(4 << 30);
        let (mount, disk) = match filesystem {
            Filesystem::Tmpfs => (builder.build().unwrap(), None),
            _ => {
                let disk = SlowDisk::builder().size(4 << 30).queue(32).build().unwrap();
                (builder.on(&disk).unwrap(), Some(disk))
            }
        };
        fill(&mount.path().join("tree"), files(), 40);
        if let Some(disk) = &disk {
            disk.set_latency(DISK);
        }
        let root = mount.path().to_owned();
        Place {
            out: root.clone(),
            root,
            kind: Kind::Mount(Box::new(mount), disk),
            is_learnt: filesystem == Filesystem::Ext4,
            profiles: crate::program::directory(),
        }
    }

    fn on_fuse() -> Place {
        let directory = crate::program::directory();
        let shown = directory.path().join("shown");
        fill(&shown.join("tree"), files() / 20, 5);
        let mount = ServedTree::new(&shown, FUSE).unwrap();
        Place {
            root: mount.path().to_owned(),
            out: directory.path().to_owned(),
            kind: Kind::Fuse(Some(mount), directory),
            is_learnt: true,
            profiles: crate::program::directory(),
        }
    }

    /// Empties the kernel's caches of the filesystem, unless it is in memory.
    fn make_cold(&mut self) {
        match &mut self.kind {
            Kind::Mount(_, None) => {}
            Kind::Mount(mount, Some(_)) => mount.remount().unwrap(),
            Kind::Fuse(mount, directory) => {
                *mount = None;
                let again = ServedTree::new(directory.path().join("shown"), FUSE).unwrap();
                self.root = again.path().to_owned();
                *mount = Some(again);
            }
        }
    }

    /// Runs a program. Returns what it has printed and written.
    fn run(&mut self, program: &Program, how: How) -> Outcome {
        let out = self.out.join("out");
        fs::create_dir_all(&out).unwrap();
        let speed = match &self.kind {
            Kind::Mount(_, Some(disk)) => Some(disk.full_speed()),
            _ => None,
        };
        let behind = match &self.kind {
            Kind::Fuse(_, directory) => directory.path().join("shown"),
            Kind::Mount(..) => self.root.clone(),
        };
        let prepared = run(&mut shell(program.prepare, &behind, &out, &[]));
        assert_eq!(prepared.code, Some(0), "{}: {prepared:?}", program.name);
        drop(speed);
        if how != How::Warm {
            self.make_cold();
        }
        let mut words = vec!["run", "--wait", "--stats"];
        words.extend(match program.follow {
            _ if matches!(how, How::Learns(_)) => ["--learn=a"].as_slice(),
            Follow::Walk => &["--walk", "tree"],
            _ => &["--ahead"],
        });
        // Reading data ahead is of use with cold caches alone.
        if how == How::Cold {
            words.push("--data");
        }
        words.push("--");
        let wrapper = if how == How::Direct { &[][..] } else { &words };
        let mut command = shell(program.script, &self.root, &out, wrapper);
        if let How::Learns(_) = how {
            command = with_profiles(&command, self.profiles.path());
        }
        let mut said = run(&mut command);
        match how {
            How::Direct => {}
            How::Cold | How::Warm => check_report(&mut said, program),
            How::Learns(run) => check_learning(&mut said, run),
        }
        let speed = match &self.kind {
            Kind::Mount(_, Some(disk)) => Some(disk.full_speed()),
            _ => None,
        };
        let after = run(&mut shell(program.afterwards, &self.root, &out, &[]));
        let written = describe(&out, program.compare);
        fs::remove_dir_all(&out).unwrap();
        drop(speed);
        Outcome {
            said: [said, after].map(|said| (said.code, said.out, said.err)),
            written,
        }
    }

    /// Compares a program with itself under `nowait run`.
    fn compare(&mut self, program: &Program) {
        // Each program has a profile of its own.
        self.profiles = crate::program::directory();
        let direct = self.run(program, How::Direct);
        assert_eq!(direct.said[0].0, Some(0), "{}: {direct:?}", program.name);
        // A filesystem in memory is never cold.
        let is_memory = matches!(self.kind, Kind::Mount(_, None));
        let runs = if is_memory {
            &program.runs[..1]
        } else {
            program.runs
        };
        let learns: &[How] = match self.is_learnt {
            true => &[How::Learns(1), How::Learns(2)],
            false => &[],
        };
        for how in runs.iter().chain(learns) {
            let ahead = self.run(program, *how);
            assert!(
                direct == ahead,
                "{}, {how:?}, is not as without nowait run:\n{}",
                program.name,
                direct.difference(&ahead)
            );
        }
    }
}

/// The way to run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// With cold caches, without `nowait run`.
    Direct,
    Cold,
    Warm,
    /// With cold caches, by `--learn`. In the second run, a profile is loaded.
    Learns(u32),
}

/// The output of a program and of the script after it, and the files that it has written.
#[derive(PartialEq, Eq)]
struct Outcome {
    said: [(Option<i32>, Vec<u8>, String); 2],
    written: BTreeMap<PathBuf, String>,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (code, out, err) in &self.said {
            write!(
                f,
                "exit code {code:?}\n{}\n{err}",
                String::from_utf8_lossy(out)
            )?;
        }
        write!(f, "{} files", self.written.len())
    }
}

impl Outcome {
    /// The first lines that differ.
    fn difference(&self, other: &Outcome) -> String {
        let lines = |outcome: &Outcome| {
            let mut lines = Vec::new();
            for (code, out, err) in &outcome.said {
                lines.push(format!("exit code {code:?}"));
                lines.extend(String::from_utf8_lossy(out).lines().map(str::to_owned));
                lines.push(err.clone());
            }
            for (path, about) in &outcome.written {
                lines.push(format!("{}: {about}", path.display()));
            }
            lines
        };
        let (here, there) = (lines(self), lines(other));
        let at = here.iter().zip(&there).position(|(a, b)| a != b);
        let at = at.unwrap_or(here.len().min(there.len()));
        format!("line {at}: {:?}\n{:?}", here.get(at), there.get(at))
    }
}

/// Removes the report of --stats from the messages, and checks that it was followed.
fn check_report(said: &mut Said, program: &Program) {
    let (report, messages): (Vec<&str>, Vec<&str>) = said
        .err
        .split_inclusive('\n')
        .partition(|line| line.starts_with("nowait: "));
    let report = report.concat();
    assert!(!report.contains("panicked"), "{said:?}");
    assert!(report.contains("read ahead"), "{}: {report}", program.name);
    let silent = report.contains("called stat(2) 0 times");
    assert!(
        program.follow != Follow::Stats || (report.contains("called stat(2)") && !silent),
        "{}: {report}",
        program.name
    );
    said.err = messages.concat();
}

/// The same for a run by `--learn`.
fn check_learning(said: &mut Said, run: u32) {
    let (report, messages): (Vec<&str>, Vec<&str>) = said
        .err
        .split_inclusive('\n')
        .partition(|line| line.starts_with("nowait: "));
    let report = report.concat();
    assert!(!report.contains("panicked"), "{said:?}");
    // The program may end first.
    let expected = match run {
        1 => ["nothing was loaded"; 2],
        _ => ["nowait: loaded", "ended before all was loaded"],
    };
    let is_expected = expected.iter().any(|it| report.contains(it));
    assert!(
        report.contains("nowait: learnt") && is_expected,
        "{run}: {report}"
    );
    said.err = messages.concat();
}

/// A command that has a directory of its own for the profiles of root.
fn with_profiles(command: &Command, profiles: &Path) -> Command {
    let mut outer = Command::new("unshare");
    let script = "mkdir -p /var/lib/nowait && mount --bind \"$0\" /var/lib/nowait && exec \"$@\"";
    outer.args(["--mount", "sh", "-c", script]).arg(profiles);
    outer.arg(command.get_program()).args(command.get_args());
    outer.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    outer
        .current_dir(command.get_current_dir().unwrap())
        .stdin(Stdio::null());
    outer
}

/// A shell that runs a script in a directory.
fn shell(script: &str, at: &Path, out: &Path, wrapper: &[&str]) -> Command {
    let script = format!("set -e\n{script}");
    let words = ["sh", "-c", &script];
    let mut command = match wrapper {
        [] => Command::new(words[0]),
        _ => nowait(wrapper.iter().copied().chain([words[0]])),
    };
    command
        .args(&words[1..])
        .current_dir(at)
        .stdin(Stdio::null())
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .env("NOWAIT_LIBRARY_DIR", libraries())
        .env("OUT", out)
        .env("HOME", out)
        .envs([
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a"),
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a"),
            ("RESTIC_PASSWORD", "a"),
            ("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes"),
            ("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes"),
        ])
        .env("RESTIC_REPOSITORY", out.join("restic/repository"))
        .env("RESTIC_CACHE_DIR", out.join("restic/cache"))
        .env("BORG_BASE_DIR", out.join("borg-home"));
    command
}

/// Makes a tree: a directory of many files, directories of 20, the source of a program, and what backups must keep.
fn fill(tree: &Path, files: usize, directories: usize) {
    let write = |path: PathBuf, number: usize| {
        let line = format!("file {number} of {}\n", path.file_name().unwrap().display());
        fs::write(&path, line.repeat(number % 97)).unwrap();
        fs::set_permissions(
            &path,
            fs::Permissions::from_mode(0o600 | (number as u32 % 8) << 3),
        )
        .unwrap();
        set_time(&path, 1_600_000_000 + number as i64 * 1001);
    };
    fs::create_dir_all(tree.join("large")).unwrap();
    for n in 0..files {
        write(tree.join(format!("large/f{n}")), n);
    }
    for d in 0..directories {
        fs::create_dir(tree.join(format!("d{d}"))).unwrap();
        for n in 0..20 {
            write(tree.join(format!("d{d}/f{n}")), d * 100 + n);
        }
    }
    fs::create_dir(tree.join("empty")).unwrap();
    fs::hard_link(tree.join("d1/f1"), tree.join("d2/linked")).unwrap();
    symlink("d1/f1", tree.join("symlink")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    let source = tree.join("source");
    fs::create_dir(&source).unwrap();
    let (mut calls, mut objects) = (String::new(), String::new());
    for n in 0..6 {
        let text = format!(
            "#include <stdio.h>\n#include \"all.h\"\nvoid f{n}(void) {{ printf(\"f{n}\\n\"); }}\n"
        );
        fs::write(source.join(format!("f{n}.c")), text).unwrap();
        calls += &format!("f{n}(); ");
        objects += &format!("$(OUT)/f{n}.o ");
    }
    let header: String = (0..6).map(|n| format!("void f{n}(void);\n")).collect();
    fs::write(source.join("all.h"), header).unwrap();
    let main = format!("#include \"all.h\"\nint main(void) {{ {calls} return 0; }}\n");
    fs::write(source.join("main.c"), main).unwrap();
    let makefile = format!(
        "$(OUT)/program: {objects} $(OUT)/main.o\n\tgcc -o $@ $^\n$(OUT)/%.o: %.c all.h\n\tgcc -c -o $@ $<\n"
    );
    fs::write(source.join("Makefile"), makefile).unwrap();
    // rsync takes modification times within one second for the same, so the time of each file is set.
    for path in fs::read_dir(tree).unwrap() {
        set_time(&path.unwrap().path(), 1_500_000_000);
    }
    set_time(tree, 1_500_000_000);
}

/// Sets the modification time of a file or symbolic link.
fn set_time(path: &Path, seconds: i64) {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 123_456_789,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Describes each file below a directory.
fn describe(root: &Path, compare: Compare) -> BTreeMap<PathBuf, String> {
    let mut described = BTreeMap::new();
    if compare == Compare::Output {
        return described;
    }
    let mut rest = vec![root.to_owned()];
    while let Some(directory) = rest.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let kind = metadata.file_type();
            let content = if kind.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else if kind.is_file() {
                let mut hasher = DefaultHasher::new();
                let mut bytes = Vec::new();
                File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
                hasher.write(&bytes);
                format!("{} bytes, hash {:x}", bytes.len(), hasher.finish())
            } else {
                rest.push(path.clone());
                String::new()
            };
            let mut about = format!("{:o} {content}", metadata.mode() & 0o170_000);
            if compare == Compare::Metadata {
                let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
                about += &format!(
                    " mode {:o}, owner {}:{}, modified {seconds}.{nanoseconds:09}",
                    metadata.mode() & 0o7777,
                    metadata.uid(),
                    metadata.gid()
                );
            }
            described.insert(path.strip_prefix(root).unwrap().to_owned(), about);
        }
    }
    described
}

/// The programs that are installed. A missing one fails the test if `NOWAIT_TEST_ALL=1`.
fn installed() -> impl Iterator<Item = &'static Program> {
    PROGRAMS.iter().filter(|program| {
        let missing = program.needs.iter().find(|(name, _)| {
            let found = Command::new("sh")
                .args(["-c", &format!("command -v {name}")])
                .output();
            !found.unwrap().status.success()
        });
        if let Some((name, package)) = missing {
            slowdisk::skip_or_fail(format!("{name} is missing (Debian package {package})"));
        }
        missing.is_none()
    })
}

fn on(filesystem: Filesystem, programs: impl Iterator<Item = &'static Program>) {
    require!(slowdisk::available());
    require!(filesystem.available());
    let mut place = Place::on(filesystem);
    for program in programs {
        place.compare(program);
    }
}

/// One half of the programs, or with `NOWAIT_RUN_FILES` all.
fn half(first: usize) -> impl Iterator<Item = &'static Program> {
    let all = std::env::var_os("NOWAIT_RUN_FILES").is_some();
    let programs = installed().enumerate();
    programs
        .filter(move |(number, _)| all || number % 2 == first)
        .map(|(_, program)| program)
}

#[test]
fn ext4() {
    on(Filesystem::Ext4, installed());
}

#[test]
fn xfs() {
    on(Filesystem::Xfs, half(0));
}

#[test]
fn btrfs() {
    on(Filesystem::Btrfs, half(1));
}

#[test]
fn overlayfs() {
    on(Filesystem::Overlay, half(0));
}

#[test]
fn tmpfs() {
    on(Filesystem::Tmpfs, half(1));
}

/// Each request takes 5 ms. The programs run at the same time, each on a mount of its own.
#[test]
fn fuse() {
    require!(slowdisk::available());
    let programs: Vec<&Program> = installed().collect();
    libraries();
    std::thread::scope(|scope| {
        for program in programs {
            scope.spawn(move || Place::on_fuse().compare(program));
        }
    });
}

/// While other processes create, unlink and rename files, a name that is there throughout is listed exactly once.
#[test]
fn a_directory_that_changes_meanwhile() {
    for filesystem in [
        Filesystem::Ext4,
        Filesystem::Xfs,
        Filesystem::Btrfs,
        Filesystem::Tmpfs,
    ] {
        require!(filesystem.available());
        let mount = TestMount::new(filesystem).unwrap();
        let directory = mount.path().join("directory");
        fs::create_dir(&directory).unwrap();
        for n in 0..6000 {
            File::create(directory.join(format!("standing{n}"))).unwrap();
        }
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (directory, over) = (&directory, &over);
                scope.spawn(move || {
                    for n in (0..).map(|n| n % 500) {
                        let [a, b] =
                            ["a", "b"].map(|name| directory.join(format!("{name}{thread}-{n}")));
                        let _ = File::create(&a);
                        let _ = fs::rename(&a, &b);
                        let _ = fs::remove_file(
                            directory.join(format!("b{thread}-{}", (n + 250) % 500)),
                        );
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            let listings: Vec<Said> = [
                "ls -fl",
                "find",
                "ls -U",
                "python3 -c 'import os; print(*os.listdir())'",
            ]
            .iter()
            .cycle()
            .take(8)
            .map(|script| {
                run(&mut shell(
                    script,
                    &directory,
                    mount.path(),
                    &["run", "--ahead", "--"],
                ))
            })
            .collect();
            over.store(true, Ordering::Relaxed);
            for said in listings {
                let words = said.out.split(|byte| b" \n/".contains(byte));
                let mut standing: Vec<&[u8]> =
                    words.filter(|word| word.starts_with(b"standing")).collect();
                assert_eq!(standing.len(), 6000, "{filesystem}: {}", said.err);
                standing.sort_unstable();
                let twice = standing.windows(2).find(|pair| pair[0] == pair[1]);
                assert_eq!(twice.map(|pair| std::ffi::OsStr::from_bytes(pair[0])), None);
            }
        });
    }
}
