//! Each verb with few descriptors, threads, and little memory, and on a full disk: all work is done, or the message
//! and the exit code say what is missing.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::program::{Group, MIB, Said, directory, limited_to, nowait, open_directory, run, word};
use slowdisk::{Filesystem, TestMount};

const DIRECTORIES: u64 = 60;
const FILES: u64 = 20 * DIRECTORIES;

/// Makes [`FILES`] files on the device, without cached pages.
fn tree(root: &Path) {
    for at in 0..DIRECTORIES {
        let dir = root.join(format!("d{at}/e"));
        fs::create_dir_all(&dir).unwrap();
        for at in 0..20 {
            fs::write(dir.join(format!("f{at}")), vec![1; 9000]).unwrap();
        }
    }
    rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
}

/// A verb that is run on the tree in a directory, and the check that it has done all its work.
/// The kernel may reclaim pages meanwhile.
struct Verb {
    words: &'static [&'static str],
    has_done_all: fn(&Said, &Path) -> bool,
}

/// The verbs in an order in which each of them finds work.
const VERBS: [Verb; 8] = [
    Verb {
        words: &["evict", "--json"],
        has_done_all: |said, _| said.json()["total"]["files"] == FILES,
    },
    Verb {
        words: &["warm", "--json"],
        has_done_all: |said, _| said.json()["files"] == FILES,
    },
    Verb {
        words: &["cache", "save", "--force", "-o", SNAPSHOT],
        has_done_all: |said, _| said.text().contains(&format!("of {FILES} files")),
    },
    Verb {
        words: &["cache", "restore", "--json", SNAPSHOT],
        has_done_all: |said, dir| said.json()["files"] == saved_files(dir),
    },
    Verb {
        words: &["fincore", "--json"],
        has_done_all: |said, _| said.json()["total"]["files"] == FILES,
    },
    Verb {
        words: &["warm", "--metadata", "--xattr", "--json"],
        has_done_all: |said, _| said.json()["inodes"] == FILES + 2 * DIRECTORIES + 1,
    },
    Verb {
        words: &["scan", "-r", "--fields", "path,size"],
        has_done_all: |said, _| said.text().lines().count() as u64 == FILES + 2 * DIRECTORIES,
    },
    Verb {
        words: &["du", "--json"],
        has_done_all: |said, _| said.json()["total"]["files"] == FILES,
    },
];

/// The name of the snapshot, beside the tree.
const SNAPSHOT: &str = "snapshot";

/// Returns the number of files in the snapshot: those of which the kernel has kept a page until then.
fn saved_files(dir: &Path) -> u64 {
    let snapshot = fs::read_to_string(dir.join(SNAPSHOT)).unwrap();
    // The other lines are the first and the last one.
    let files = snapshot.lines().count() as u64 - 2;
    assert!(files > FILES / 2, "{files} of {FILES}");
    files
}

impl Verb {
    /// The arguments for the tree `t` in the working directory.
    fn words(&self) -> Vec<&'static str> {
        let tree = (self.words[1] != "restore").then_some("t");
        self.words.iter().copied().chain(tree).collect()
    }

    /// Returns true if it reads data.
    fn reads(&self) -> bool {
        matches!(self.words, ["warm", "--json"] | ["cache", "restore", ..])
    }

    /// Returns true if a run has printed no message. Pages that stay make the exit code 1.
    fn ended_well(&self, said: &Said) -> bool {
        let stayed = || said.json()["total"]["stayed_files"].as_u64() > Some(0);
        said.err.is_empty()
            && (said.code == Some(0)
                || (self.words[0] == "evict" && said.code == Some(1) && stayed()))
    }

    /// Makes work for the verb in this working directory.
    fn prepare(&self, dir: &Path) {
        let before = match self.words[1] {
            "save" => "warm",
            _ if self.reads() => "evict",
            _ => return,
        };
        // Some pages may be in use when they are evicted.
        run(nowait([before, "t"]).current_dir(dir));
    }
}

#[test]
fn few_descriptors_lose_no_file() {
    let dir = directory();
    tree(&dir.path().join("t"));
    for most in [16, 64] {
        for verb in VERBS {
            verb.prepare(dir.path());
            let mut command = nowait(verb.words());
            let said = run(limited_to(&mut command, "nofile", most).current_dir(dir.path()));
            let case = format!("{most} {:?} {said:?}", verb.words);
            assert!(verb.ended_well(&said), "{case}");
            assert!((verb.has_done_all)(&said, dir.path()), "{case}");
        }
    }
}

/// A program for a user who has no other process: the limit of processes counts those of the user.
fn as_a_new_user(program: &Path, words: &[&str], processes: u64, backend: Option<&str>) -> Said {
    let mut command = Command::new(program);
    limited_to(command.args(words), "nproc", processes);
    let user = new_user();
    command
        .uid(user)
        .gid(user)
        .current_dir(program.parent().unwrap());
    if let Some(backend) = backend {
        command.env("NOWAIT_BACKEND", backend);
    }
    run(&mut command)
}

fn new_user() -> u32 {
    1_000_000 + std::process::id()
}

#[test]
fn few_threads_lose_no_file() {
    let dir = open_directory();
    let program = dir.path().join("nowait");
    slowdisk::copy_program(env!("CARGO_BIN_EXE_nowait"), &program).unwrap();
    let owned = fs::metadata(dir.path()).unwrap().permissions().mode() | 0o777;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(owned)).unwrap();
    tree(&dir.path().join("t"));
    let user = new_user();
    let all = run(Command::new("find").arg(dir.path().join("t"))).done();
    for path in all.text().lines() {
        chown(path, Some(user), Some(user)).unwrap();
    }
    for (backend, processes) in [
        (None, 1),
        (None, 2),
        (None, 4),
        (Some("threads"), 1),
        (Some("threads"), 2),
    ] {
        for verb in VERBS
            .iter()
            .filter(|verb| backend.is_none() || verb.reads())
        {
            verb.prepare(dir.path());
            let said = as_a_new_user(&program, &verb.words(), processes, backend);
            let case = format!("{backend:?} {processes} {:?} {said:?}", verb.words);
            if backend.is_some() && processes == 1 {
                // This backend consists of threads.
                assert_eq!(said.code, Some(1), "{case}");
                let why = "start a worker thread: Resource temporarily unavailable";
                assert!(said.err.contains(why), "{case}");
                continue;
            }
            assert!(verb.ended_well(&said), "{case}");
            assert!((verb.has_done_all)(&said, dir.path()), "{case}");
        }
    }
}

/// The messages of libraries that end the process for lack of memory.
const ABORTS: [&str; 3] = [
    "memory allocation of ",
    "failed to allocate an alternative stack",
    "Fatal glibc error: ",
];

#[test]
fn little_address_space_ends_a_verb_with_a_message() {
    let dir = directory();
    tree(&dir.path().join("t"));
    assert_eq!(
        run(nowait(["cache", "save", "-o", SNAPSHOT, "t"]).current_dir(dir.path())).code,
        Some(0)
    );
    // The program is mapped with 15 MiB without optimisation. A stack that cannot grow is SIGSEGV.
    for mib in [20, 40, 100, 300] {
        for verb in VERBS {
            let mut command = nowait(verb.words());
            let said = run(limited_to(&mut command, "as", mib * MIB).current_dir(dir.path()));
            let explained = match said.code {
                Some(0) => true,
                Some(1) if verb.ended_well(&said) => true,
                Some(1 | 127) => !said.err.is_empty(),
                // SIGABRT, by the standard library or the C library: a thread that has begun lacks memory.
                None => ABORTS.iter().any(|why| said.err.contains(why)),
                Some(_) => false,
            };
            assert!(explained, "{mib} {:?} {said:?}", verb.words);
        }
    }
}

#[test]
fn a_full_filesystem_is_reported() {
    slowdisk::require!(Filesystem::Tmpfs.available());
    let mount = TestMount::builder(Filesystem::Tmpfs)
        .size(1 << 20)
        .build()
        .unwrap();
    let dir = directory();
    tree(&dir.path().join("t"));
    assert_eq!(
        run(nowait(["cache", "save", "-o", SNAPSHOT, "t"]).current_dir(dir.path())).code,
        Some(0)
    );
    let old = mount.path().join("old");
    fs::copy(dir.path().join(SNAPSHOT), &old).unwrap();
    let before = fs::read(&old).unwrap();
    while fs::write(mount.path().join("rest"), vec![1; 2 << 20]).is_ok() {}
    for verb in VERBS.iter().filter(|verb| verb.words[1] != "save") {
        let full = File::create(mount.path().join("out")).unwrap();
        let mut command = nowait(verb.words());
        let said = Said::of(
            &command
                .current_dir(dir.path())
                .stdout(full)
                .output()
                .unwrap(),
        );
        assert_eq!(said.code, Some(1), "{:?} {said:?}", verb.words);
        let why = "cannot write to standard output: No space left on device";
        assert!(said.err.contains(why), "{:?} {said:?}", verb.words);
    }
    for words in [&["-o", "new"][..], &["--force", "-o", "old"]] {
        let t = dir.path().join("t");
        let words = [&["cache", "save"], words, &[word(&t)]].concat();
        let said = run(nowait(words).current_dir(mount.path())).in_part();
        assert!(said.err.contains("No space left on device"), "{said:?}");
    }
    // The old snapshot is as it was, and nothing is left of the new ones.
    assert_eq!(fs::read(&old).unwrap(), before);
    let names = fs::read_dir(mount.path()).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["old", "out", "rest"]);
}

#[test]
fn messages_that_cannot_be_printed_change_no_exit_code() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let missing = ["scan", "du", "fincore", "evict", "warm"].map(|verb| [verb, "/nonesuch"]);
    for words in missing {
        let code = nowait(words).stderr(full()).status().unwrap().code();
        assert_eq!(code, Some(1), "{words:?}");
    }
    // The program cannot be watched, which is said before it begins.
    let mut command = nowait(["run", "--wait", "--stats", "--", "sh", "-c", "exit 3"]);
    limited_to(&mut command, "fsize", MIB).env("NOWAIT_LIBRARY_DIR", crate::program::libraries());
    let code = command.stderr(full()).status().unwrap().code();
    assert_eq!(code, Some(3));
}

#[test]
fn a_small_cgroup_is_enough() {
    let Some(group) = Group::new(64 * MIB) else {
        return slowdisk::skip_or_fail("a cgroup with a memory controller");
    };
    let dir = directory();
    tree(&dir.path().join("t"));
    // Twice the memory of the group.
    fs::write(dir.path().join("large"), vec![1; 128 * MIB as usize]).unwrap();
    for verb in VERBS {
        verb.prepare(dir.path());
        let mut command = nowait(verb.words());
        let said = run(group.around(&mut command).current_dir(dir.path()));
        let is_done = verb.ended_well(&said) && (verb.has_done_all)(&said, dir.path());
        assert!(is_done, "{:?} {said:?}", verb.words);
    }
    run(nowait(["evict", "--flush", "large"]).current_dir(dir.path()));
    let mut command = nowait(["warm", "large"]);
    let said = run(group.around(&mut command).current_dir(dir.path())).in_part();
    assert!(said.text().contains("not read: "), "{said:?}");
}
