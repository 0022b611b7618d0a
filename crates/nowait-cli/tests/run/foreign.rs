//! Tests of `nowait run` with programs that shall not notice it: the library makes no system call in them, and those that cannot load it
//! are as alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{Said, all_libraries, nowait, open_directory, run, word};
use tempfile::TempDir;

/// A directory with `tree`: some directories, one of them of many names.
fn place() -> TempDir {
    let place = open_directory();
    let tree = place.path().join("tree");
    for (directory, files) in [("many", 1200), ("few", 3), ("few/below", 2), ("empty", 0)] {
        fs::create_dir_all(tree.join(directory)).unwrap();
        for n in 0..files {
            fs::write(tree.join(format!("{directory}/file{n}")), "text").unwrap();
        }
    }
    // tests/c/calls.c reads these.
    for d in 1..=4 {
        fs::create_dir(tree.join(format!("d{d}"))).unwrap();
        for f in 1..=4 {
            fs::write(tree.join(format!("d{d}/f{f}")), "text").unwrap();
        }
    }
    fs::create_dir(tree.join("large")).unwrap();
    place
}

/// A command in the directory, under `nowait run` with these options if there are some.
fn command(place: &TempDir, options: &[&str], words: &[&str]) -> Command {
    let mut command = match options {
        [] => Command::new(words[0]),
        _ => nowait(["run"].iter().chain(options).chain(&["--", words[0]])),
    };
    command
        .args(&words[1..])
        .env("LC_ALL", "C.UTF-8")
        .env("NOWAIT_LIBRARY_DIR", all_libraries())
        .current_dir(place.path());
    command
}

/// The output, without the notes of `nowait run`.
fn said(said: &Said) -> (Option<i32>, String, String) {
    let lines = said.err.split_inclusive('\n');
    assert!(!said.err.contains("panicked"), "{said:?}");
    let err = lines.filter(|line| !line.starts_with("nowait: ")).collect();
    (said.code, said.text().to_owned(), err)
}

fn compile(place: &TempDir, compiler: &str, source: &str, name: &str, words: &[&str]) -> PathBuf {
    let built = place.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(source);
    let mut command = Command::new(compiler);
    command
        .args(["-O1", "-Wall", "-Wextra"])
        .args(words)
        .arg("-o");
    let said = run(command.args([&built, &source]));
    assert_eq!(said.code, Some(0), "{compiler} {name}: {said:?}");
    built
}

fn is_missing(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output();
    !found.unwrap().status.success()
}

/// The system calls of a program since the dynamic linker has loaded its libraries.
fn calls(place: &TempDir, options: &[&str], words: &[&str]) -> Vec<String> {
    let log = place.path().join("calls");
    let strace = ["strace", "-o", word(&log), "--signal=none"];
    let said = run(&mut command(place, options, &[&strace, words].concat()));
    assert_eq!(said.code, Some(0), "{words:?}: {said:?}");
    let log = fs::read_to_string(log).unwrap();
    // It unmaps the cache of libraries last.
    let start = log.find("munmap(").unwrap();
    let calls = log[start..].lines().skip(1).map(str::to_owned).collect();
    whole_maps(calls)
}

/// The calls with one read(2) of /proc/self/maps for each time that the file is opened. A program that looks there for its stack
/// (glibc's pthread_getattr_np(3)) makes one for each page of lines, and the library adds lines with a path that may be long.
fn whole_maps(calls: Vec<String>) -> Vec<String> {
    let mut maps: Option<String> = None;
    let mut kept: Vec<String> = Vec::new();
    for call in calls {
        if call.starts_with("openat(AT_FDCWD, \"/proc/self/maps\"") {
            maps = call.rsplit_once(" = ").map(|(_, fd)| fd.to_owned());
        }
        let of = |name: &str| maps.as_ref().map(|fd| format!("{name}({fd}"));
        let is = |name: &str, call: &str| of(name).is_some_and(|start| call.starts_with(&start));
        if is("close", &call) {
            maps = None;
        } else if is("read", &call) && kept.last().is_some_and(|last| is("read", last)) {
            continue;
        }
        kept.push(call);
    }
    kept
}

/// Removes the calls by which the library opens the channel at the start, and returns true if there were some.
fn remove_start(calls: &mut Vec<String>) -> bool {
    let is_channel = |call: &String| {
        call.strip_prefix("openat(AT_FDCWD, \"/proc/")
            .is_some_and(|rest| {
                rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains("/fd/")
            })
    };
    let Some(start) = calls.iter().position(is_channel) else {
        return false;
    };
    const CALLS: [&str; 11] = [
        "openat", "fstat", "openat", "openat", "pread64", "close", "openat", "mmap", "close",
        "close", "close",
    ];
    let names: Vec<&str> = calls[start..start + CALLS.len()]
        .iter()
        .map(|call| name(call))
        .collect();
    assert_eq!(names, CALLS);
    calls.drain(start..start + CALLS.len());
    true
}

/// The name of a call. The C library makes fstat(3) by one of two.
fn name(call: &str) -> &str {
    match call.split('(').next().unwrap() {
        "newfstatat" if call.contains(", \"\", ") => "fstat",
        name => name,
    }
}

#[test]
fn the_program_makes_the_same_system_calls() {
    if is_missing("strace") {
        return slowdisk::skip_or_fail("strace is missing (Debian package strace)");
    }
    let place = place();
    let cases = compile(
        &place,
        "cc",
        "calls.c",
        "calls.built",
        &["-std=gnu11", "-pthread", "-Wno-nonnull"],
    );
    let cases = word(&cases);
    let all: &[&[&str]] = &[
        &["--ahead"],
        &["--data"],
        &["--walk", "tree", "--data", "--ahead"],
    ];
    let aio: &[&[&str]] = &[&["--aio"]];
    for (words, runs) in [
        (&["ls", "-lR", "tree"][..], all),
        (&["find", "tree", "-ls"], all),
        (&["du", "-a", "tree"], all),
        (&["tar", "-cf", "-", "tree"], all),
        (&["grep", "-rc", "x*", "tree"], all),
        (&["cat", "tree/few/file1"], all),
        (&["cat", "tree/few/file1"], aio),
        (&[cases, "directories"], &all[1..2]),
        (&[cases, "scandirs"], &all[1..2]),
        (&[cases, "globs"], &all[1..2]),
        (&[cases, "walks"], &all[1..2]),
        (&[cases, "fts_walks"], &all[1..2]),
        (&[cases, "raw_listings"], &all[1..2]),
        (&[cases, "stats"], &all[1..2]),
        (&[cases, "old_versions"], &all[1..2]),
    ] {
        let direct = calls(&place, &[], words);
        assert!(direct.len() > 5, "{words:?}");
        for options in runs {
            let mut watched = calls(&place, options, words);
            assert_eq!(
                remove_start(&mut watched),
                *runs != *aio,
                "{options:?}, {words:?}"
            );
            let names = |calls: &[String]| {
                calls
                    .iter()
                    .map(|call| name(call).to_owned())
                    .collect::<Vec<_>>()
            };
            let first = names(&direct)
                .iter()
                .zip(&names(&watched))
                .position(|(a, b)| a != b);
            assert!(
                names(&direct) == names(&watched),
                "{options:?}, {words:?}: {} calls and {}, at {first:?}: {:?} and {:?}",
                direct.len(),
                watched.len(),
                first.map(|at| &direct[at]),
                first.map(|at| &watched[at]),
            );
        }
    }
}

#[test]
fn a_program_with_a_filter_of_its_calls_runs() {
    let place = place();
    let sandbox = compile(&place, "cc", "sandbox.c", "sandbox.built", &["-std=gnu11"]);
    for how in ["listen", "inherit"] {
        let mut words = vec![word(&sandbox), how];
        words.extend(["tree", "tree/many", "tree/few", "tree/none"].repeat(5));
        let direct = run(&mut command(&place, &[], &words)).done();
        assert!(
            direct.text().ends_with("the child: 0\n"),
            "{how}: {direct:?}"
        );
        for options in [
            &["--ahead"][..],
            &["--data"],
            &["--walk", "tree", "--data"],
            &["--aio"],
        ] {
            let watched = run(&mut command(&place, options, &words));
            assert_eq!(said(&watched), said(&direct), "{how}, {options:?}");
        }
    }
}

/// A kind of program.
struct Kind {
    name: &'static str,
    words: Vec<String>,
}

/// Programs that list the directory `tree/few` and exit with 7, of each kind that this machine can build.
fn kinds(place: &TempDir) -> Vec<Kind> {
    let mut kinds = Vec::new();
    let mut add = |name, words: &[&str]| {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        kinds.push(Kind { name, words });
    };
    for (name, compiler, package, words) in [
        ("plain", "cc", "gcc", &[][..]),
        ("musl", "musl-gcc", "musl-tools", &[]),
        ("32 bits", "i686-linux-gnu-gcc", "gcc-i686-linux-gnu", &[]),
        ("asan", "gcc", "gcc", &["-fsanitize=address"]),
        (
            "static asan",
            "gcc",
            "gcc",
            &["-fsanitize=address", "-static-libasan"],
        ),
        ("tsan", "gcc", "gcc", &["-fsanitize=thread"]),
        ("static", "cc", "gcc", &["-static"]),
        ("static musl", "musl-gcc", "musl-tools", &["-static"]),
    ] {
        if name == "32 bits" && !cfg!(target_arch = "x86_64") {
            continue;
        }
        if is_missing(compiler) {
            slowdisk::skip_or_fail(format!("{compiler} is missing (Debian package {package})"));
            continue;
        }
        let built = compile(place, compiler, "lists.c", &name.replace(' ', "_"), words);
        add(name, &[word(&built), "tree/few"]);
    }
    let plain = place.path().join("plain");
    let script = place.path().join("script");
    fs::write(&script, "#!/bin/sh\n./plain \"$@\"\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    add("script", &[word(&script), "tree/few"]);
    add(
        "empty environment",
        &["env", "-i", word(&plain), "tree/few"],
    );
    if rustix::process::geteuid().is_root() {
        let copy = place.path().join("setuid");
        slowdisk::copy_program(&plain, &copy).unwrap();
        std::os::unix::fs::chown(&copy, Some(1), Some(1)).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o6755)).unwrap();
        add("setuid", &[word(&copy), "tree/few"]);
    } else {
        slowdisk::skip_or_fail("not root");
    }
    if is_missing("go") {
        slowdisk::skip_or_fail("go is missing (Debian package golang-go)");
    } else {
        let (source, built) = (place.path().join("go.go"), place.path().join("go"));
        let text = "package main\nimport \"os\"\nfunc main() { d, _ := os.Open(os.Args[1]); n, _ := d.Readdirnames(-1)
            println(len(n)); os.Exit(7) }\n";
        fs::write(&source, text).unwrap();
        let mut go = Command::new("go");
        go.args(["build", "-o"])
            .args([&built, &source])
            .env("GO111MODULE", "off");
        let said = run(go.env("CGO_ENABLED", "0"));
        assert_eq!(said.code, Some(0), "{said:?}");
        add("go", &[word(&built), "tree/few"]);
    }
    kinds
}

#[test]
fn programs_of_each_kind_are_as_alone() {
    let place = place();
    for kind in kinds(&place) {
        let words: Vec<&str> = kind.words.iter().map(String::as_str).collect();
        let shell = [&["sh", "-c", "\"$@\"; exit $?", "sh"], &words[..]].concat();
        for words in [words, shell] {
            let direct = run(&mut command(&place, &[], &words));
            assert_eq!(direct.code, Some(7), "{}: {direct:?}", kind.name);
            for options in [
                &["--ahead"][..],
                &["--data", "--aio"],
                &["--aio"],
                &["--walk", "tree"],
            ] {
                let watched = run(&mut command(&place, options, &words));
                assert_eq!(
                    said(&watched),
                    said(&direct),
                    "{}, {options:?}, {words:?}",
                    kind.name
                );
            }
        }
    }
}
