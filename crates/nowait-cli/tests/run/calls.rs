//! Tests of the functions that libnowait_ahead.so interposes: programs in C and C++ print what the functions return, with and
//! without `nowait run`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{Said, libraries, nowait, open_directory, prepare_libraries, run, wait_until};
use tempfile::TempDir;

/// A directory with `tree`, and the compiled programs.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(open_directory());
        let tree = place.0.path().join("tree");
        for directory in ["large", "empty", "d1", "d2", "d3", "d4"] {
            fs::create_dir_all(tree.join(directory)).unwrap();
        }
        for d in 1..=4 {
            for f in 1..=4 {
                fs::write(tree.join(format!("d{d}/f{f}")), "x".repeat(d * f)).unwrap();
            }
        }
        for n in 0..300 {
            fs::write(tree.join(format!("large/l{n}")), "").unwrap();
        }
        symlink("d1/f3", tree.join("link")).unwrap();
        symlink("none", tree.join("dangling")).unwrap();
        place
    }

    /// Compiles a file of tests/c.
    fn compile(&self, compiler: &str, source: &str, words: &[&str]) -> PathBuf {
        crate::program::compile(compiler, source, words, self.0.path())
    }

    fn calls(&self) -> PathBuf {
        self.compile("cc", "calls.c", &["-std=gnu11"])
    }

    /// A command in the directory.
    fn direct(&self, words: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .env("LC_ALL", "C.UTF-8")
            .current_dir(self.0.path());
        command
    }

    /// The same under `nowait run`.
    fn ahead(&self, words: &[&str]) -> Command {
        let mut command = nowait(["run", "--ahead", "--"].iter().chain(words));
        command
            .env("NOWAIT_LIBRARY_DIR", libraries())
            .current_dir(self.0.path());
        command
    }

    /// Compares the output of a program with that under `nowait run`.
    fn compare(&self, words: &[&str]) -> Said {
        let [direct, ahead] = [self.direct(words), self.ahead(words)].map(|mut c| run(&mut c));
        assert_eq!(said(&direct), said(&ahead), "{words:?}");
        direct
    }
}

fn said(said: &Said) -> (Option<i32>, &str, &str) {
    (said.code, said.text(), &said.err)
}

fn word(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn each_function_returns_the_same() {
    let place = Place::new();
    let calls = place.calls();
    let cases = run(&mut Command::new(&calls)).done();
    assert!(cases.text().lines().count() > 10);
    for case in cases.text().lines() {
        let said = place.compare(&[word(&calls), case]);
        let end = if case == "exit_handlers" { 3 } else { 0 };
        assert_eq!(said.code, Some(end), "{case}: {said:?}");
        assert!(!said.out.is_empty(), "{case}");
    }
}

#[test]
fn exceptions_go_through_nftw() {
    let place = Place::new();
    let program = place.compile("c++", "exceptions.cc", &[]);
    let said = place.compare(&[word(&program)]).done();
    assert!(
        said.text().contains("caught: from the callback"),
        "{said:?}"
    );
}

#[test]
fn a_malloc_of_the_programs_is_kept() {
    let place = Place::new();
    let calls = place.calls();
    let malloc = place.compile("cc", "malloc.c", &["-shared", "-fPIC"]);
    for case in ["directories", "walks", "threads", "vforks", "libraries"] {
        let direct = run(place
            .direct(&[word(&calls), case])
            .env("LD_PRELOAD", &malloc));
        let ahead = run(place
            .ahead(&[word(&calls), case])
            .env("LD_PRELOAD", &malloc));
        assert_eq!(said(&direct), said(&ahead), "{case}");
    }
    // Its functions come first.
    let order = "echo $LD_PRELOAD";
    let ahead = run(place.ahead(&["sh", "-c", order]).env("LD_PRELOAD", &malloc));
    let libraries = libraries().canonicalize().unwrap();
    let expected = format!(
        "{}:{}/preload/libasan.so/$PLATFORM/libnowait_ahead.so\n",
        malloc.display(),
        libraries.display()
    );
    assert_eq!(ahead.done().text(), expected);
}

#[test]
fn the_switch_turns_it_off() {
    let place = Place::new();
    let calls = place.calls();
    for case in ["directories", "stats"] {
        let direct = run(&mut place.direct(&[word(&calls), case]));
        let mut off = nowait(["run", "--wait", "--stats", "--", word(&calls), case]);
        off.env("NOWAIT_LIBRARY_DIR", libraries())
            .env("NOWAIT_AHEAD", "off")
            .current_dir(place.0.path());
        let off = run(&mut off);
        assert_eq!((direct.code, direct.text()), (off.code, off.text()));
        assert!(off.err.contains("called stat(2) 0 times"), "{off:?}");
    }
}

/// A setuid program of another user ignores the preload, and its children have it again.
#[test]
fn setuid_programs_are_as_they_are() {
    if !rustix::process::geteuid().is_root() {
        return slowdisk::skip_or_fail("not root");
    }
    let place = Place::new();
    let copy = place.0.path().join("setuid");
    fs::copy("/bin/ls", &copy).unwrap();
    std::os::unix::fs::chown(&copy, Some(1), Some(1)).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o6755)).unwrap();
    // A user who is not the owner of the file.
    let as_user = |command: &mut Command| run(command.uid(65534).gid(65534));
    let program = place.0.path().join("nowait");
    slowdisk::copy_program(env!("CARGO_BIN_EXE_nowait"), &program).unwrap();
    let shared = place.0.path().join("libnowait_ahead.so");
    slowdisk::copy_program(libraries().join("libnowait_ahead.so"), &shared).unwrap();
    prepare_libraries(place.0.path());
    let list = format!("{} -l tree/d1; ls tree/d2", copy.display());
    let direct = as_user(&mut place.direct(&["sh", "-c", &list]));
    let words = [word(&program), "run", "--", "sh", "-c", &list];
    let ahead = as_user(
        place
            .direct(&words)
            .env("NOWAIT_LIBRARY_DIR", place.0.path()),
    );
    assert_eq!(said(&direct), said(&ahead));
    assert_eq!(direct.code, Some(0));
    // Told of at the start.
    let words = [word(&program), "run", "--", word(&copy), "tree"];
    let ahead = as_user(
        place
            .direct(&words)
            .env("NOWAIT_LIBRARY_DIR", place.0.path()),
    );
    assert_eq!(ahead.code, Some(0), "{ahead:?}");
    assert!(ahead.err.contains("is setuid"), "{ahead:?}");
}

/// A process that is left behind goes on after `nowait run` has ended.
#[test]
fn a_process_that_stays_works() {
    let place = Place::new();
    let script = "(while test ! -e over; do sleep 0.01; done; ls -l tree/d1 >listing; find tree >found; mv found whole) \
                  >/dev/null 2>&1 & ls -l tree/d1";
    let said = run(&mut place.ahead(&["sh", "-c", script])).done();
    fs::write(place.0.path().join("over"), "").unwrap();
    let whole = place.0.path().join("whole");
    wait_until("the process has ended", || whole.exists());
    let listing = fs::read_to_string(place.0.path().join("listing")).unwrap();
    assert_eq!(listing, said.text());
    let found = fs::read_to_string(whole).unwrap();
    assert_eq!(found.lines().count(), 325);
}

#[test]
fn valgrind_finds_nothing() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return slowdisk::skip_or_fail("valgrind is missing (Debian package valgrind)");
    }
    let place = Place::new();
    let calls = place.calls();
    let valgrind = ["valgrind", "--quiet", "--error-exitcode=9"];
    for case in [
        "directories",
        "scandirs",
        "globs",
        "walks",
        "nested_walks",
        "fts_walks",
        "old_versions",
        "threads",
    ] {
        let direct = run(&mut place.direct(&[word(&calls), case])).done();
        let ahead = run(&mut place.ahead(&[&valgrind[..], &[word(&calls), case]].concat()));
        assert_eq!(said(&direct), said(&ahead), "{case}");
    }
}
