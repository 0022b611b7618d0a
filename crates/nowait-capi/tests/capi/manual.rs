//! The manual pages: each function has one, each page is well-formed, and each example runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installed::{Linking, Program, run, run_to_end, scratch};
use crate::symbols::{declared, header};

fn pages() -> Vec<PathBuf> {
    let man = Path::new(env!("CARGO_MANIFEST_DIR")).join("man");
    let pages = std::fs::read_dir(man).unwrap();
    pages.map(|page| page.unwrap().path()).collect()
}

#[test]
fn each_function_has_a_page() {
    let mut named = BTreeSet::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for line in text.lines() {
            // `make install` makes a link for each name of a page.
            if let Some(words) = line.strip_prefix(".Nm ") {
                named.extend(words.split_whitespace().next().map(str::to_owned));
            }
        }
    }
    let header = std::fs::read_to_string(header()).unwrap();
    let functions = header.lines().filter_map(|line| {
        let words = line.strip_prefix("static inline ")?;
        let name = words.split_once('(')?.0.rsplit([' ', '*']).next()?;
        Some(name.to_owned())
    });
    let functions: BTreeSet<String> = functions.chain(declared()).collect();
    let missing: Vec<_> = functions.difference(&named).cloned().collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_pages_are_well_formed() {
    for page in pages() {
        let said = run(Command::new("mandoc")
            .args(["-T", "lint", "-W", "warning"])
            .arg(&page));
        assert!(said.is_empty(), "{said}");
    }
}

/// The program in the examples of a page.
fn example(page: &Path) -> String {
    let text = std::fs::read_to_string(page).unwrap();
    let examples = text.split_once(".Sh EXAMPLES\n").expect("examples").1;
    let program = examples.split_once(".Bd -literal\n").expect("a program").1;
    let program = program.split_once("\n.Ed").expect("an end").0;
    program.replace("\\e", "\\").replace("\\&", "") + "\n"
}

#[test]
fn the_examples_run() {
    let scratch = scratch();
    for page in pages() {
        let source = scratch.path().join("example.c");
        std::fs::write(&source, example(&page)).unwrap();
        let strict = [
            "cc",
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
        ];
        for linking in [Linking::Shared, Linking::Static] {
            let program = Program::compile(&strict, &source, linking);
            let mut command = program.command();
            command.current_dir(scratch.path());
            std::fs::write(scratch.path().join("file"), [b'x'; 10_000]).unwrap();
            let ran = run_to_end(&mut command);
            assert!(ran.is_ok(), "{}: {ran:?}", page.display());
        }
    }
}
