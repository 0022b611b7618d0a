//! Tests of `nowait run` with programs that cannot load the preloaded libraries, or only in part: they do not notice it.

#[path = "common/program.rs"]
mod program;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use program::{Said, all_libraries, nowait, open_directory, run, word};
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
            slowdisk::skip_or_fail(&format!("{compiler} is missing (Debian package {package})"));
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
