//! Tests of the manual pages and completions that `nowait generate` prints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{directory, nowait, run};

/// Writes all files into a directory, and returns their paths.
fn generate(dir: &Path) -> Vec<PathBuf> {
    let list = run(&mut nowait(["generate"])).done();
    let write = |name: &str| {
        let text = run(&mut nowait(["generate", name])).done();
        let path = dir.join(name);
        fs::write(&path, &text.out).unwrap();
        path
    };
    list.text().lines().map(write).collect()
}

/// Returns true if a program is installed. If not, the test is skipped.
fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        slowdisk::skip_or_fail(program);
    }
    found
}

fn pages(dir: &Path) -> Vec<PathBuf> {
    let files = generate(dir).into_iter();
    files
        .filter(|path| path.extension().is_some_and(|e| e == "1"))
        .collect()
}

#[test]
fn every_verb_has_a_page_with_all_sections() {
    let dir = directory();
    let pages = pages(dir.path());
    assert_eq!(pages.len(), 17);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let sections: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix(".SH "))
            .collect();
        for section in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "EXAMPLES",
            "\"EXIT STATUS\"",
            "\"SEE ALSO\"",
        ] {
            let count = sections.iter().filter(|other| **other == section).count();
            assert_eq!(count, 1, "{section} of {page:?}: {sections:?}");
        }
    }
}

#[test]
fn mandoc_finds_nothing_wrong() {
    if !has("mandoc") {
        return;
    }
    let dir = directory();
    let man = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../man");
    let others = fs::read_dir(man)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for page in pages(dir.path()).into_iter().chain(others) {
        let lint = run(Command::new("mandoc").arg("-Tlint").arg(&page));
        let text = String::from_utf8_lossy(&lint.out).into_owned();
        // Pages of this package refer to each other before they are installed.
        let wrong = text
            .lines()
            .filter(|line| !line.contains("outdated mandoc.db"));
        let wrong: Vec<_> = wrong
            .filter(|line| !line.contains("referenced manual not found"))
            .collect();
        assert!(wrong.is_empty(), "{page:?}: {wrong:#?}");
    }
}

#[test]
fn shells_complete_verbs_and_options() {
    let dir = directory();
    generate(dir.path());
    let complete = |words: &[&str]| {
        let script = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                      _nowait nowait \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut bash = Command::new("bash");
        bash.args(["-c", script, "bash"])
            .arg(dir.path().join("nowait.bash"))
            .args(words);
        run(&mut bash).done().text().to_owned()
    };
    assert_eq!(complete(&["nowait", "fin"]), "fincore\n");
    assert_eq!(complete(&["nowait", "du", "--appa"]), "--apparent-size\n");
    assert_eq!(complete(&["nowait", "cache", "s"]), "save\n");
    for (shell, check, file) in [
        ("zsh", "-n", "_nowait"),
        ("fish", "--no-execute", "nowait.fish"),
    ] {
        if has(shell) {
            run(Command::new(shell).arg(check).arg(dir.path().join(file))).done();
        }
    }
    if has("fish") {
        let source = format!(
            "source {}; complete -C 'nowait fin'",
            dir.path().join("nowait.fish").display()
        );
        let said = run(Command::new("fish").args(["-c", &source])).done();
        assert!(said.text().starts_with("fincore"), "{said:?}");
    }
}

#[test]
fn an_unknown_file_is_wrong_usage() {
    let said = run(&mut nowait(["generate", "nowait.ksh"]));
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.err.contains("`nowait generate` lists them"),
        "{said:?}"
    );
}

#[test]
fn an_output_that_cannot_be_written_is_reported() {
    for name in ["nowait.bash", "nowait.1"] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = nowait(["generate", name]).stdout(full).output().unwrap();
        let said = crate::program::Said::of(&output).in_part();
        assert!(
            said.err
                .contains("cannot write to standard output: No space left"),
            "{said:?}"
        );
    }
}
