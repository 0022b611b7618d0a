//! Style is a test: what ARCHITECTURE.md promises of the source, checked in the source.

use std::path::{Path, PathBuf};

/// Every Rust file of the library: its path below `src`, and its text without the unit tests.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut dirs = vec![root.clone()];
    let mut found = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                // Unit tests, and the model checkers' (`make model`).
                let tests = ["#[cfg(test)]", "#[cfg(all(test,"];
                let ends = tests.iter().filter_map(|tests| text.find(tests)).min();
                let code = text[..ends.unwrap_or(text.len())].to_owned();
                found.push((path.strip_prefix(&root).unwrap().to_owned(), code));
            }
        }
    }
    assert!(found.len() > 20, "the library has more files than that");
    found
}

/// The lines of code that are no comments, with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    numbered.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Complains about every line of a file outside `homes` that has one of `words`.
fn only_in(homes: &[&str], words: &[&str], why: &str) {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if homes.iter().any(|home| path.starts_with(home)) {
            continue;
        }
        for (n, line) in code(&text) {
            if words.iter().any(|word| line.contains(word)) {
                wrong.push(format!("{}:{n}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{why}:\n{}", wrong.join("\n"));
}

#[test]
fn every_module_says_what_it_is_for() {
    for (path, text) in sources() {
        assert!(
            text.starts_with("//!"),
            "{} does not begin with a //! line",
            path.display()
        );
    }
}

#[test]
fn system_calls_by_number_live_in_sys() {
    only_in(
        &["sys", "sys.rs"],
        &["libc::syscall", "SYS_"],
        "sys/ alone makes calls by number",
    );
}

#[test]
fn unsafe_lives_where_it_is_fenced() {
    let fenced = ["sys", "sys.rs", "op", "op.rs", "engine", "engine.rs"];
    let words = ["unsafe {", "unsafe fn", "unsafe impl", "allow(unsafe_code)"];
    only_in(&fenced, &words, "unsafe only in sys/, op/ and engine/");
}

#[test]
fn the_library_never_prints_exits_or_panics() {
    let words = [
        "println!",
        "print!(",
        "dbg!",
        "process::exit",
        "process::abort",
        "panic!(",
        ".unwrap()",
        ".expect(\"",
        "todo!",
        "unimplemented!",
        "unreachable!",
    ];
    only_in(&[], &words, "errors go to the caller");
}

#[test]
fn a_fork_finds_no_lock_of_the_standard_library() {
    // They wait for the thread that is at it, which is not there in a forked child. What is asked once
    // is kept in cells of `once_cell::race`, threads are started by `sys::spawn`.
    let words = ["OnceLock", "LazyLock", "thread::Builder", "thread::spawn("];
    // The model checker's own threads.
    let homes = ["sync.rs"];
    only_in(&homes, &words, "a child of a fork would wait for ever");
}

#[test]
fn capabilities_are_tried_not_read_from_a_version() {
    only_in(
        &[],
        &["uname", "/proc/version", "osrelease"],
        "no kernel-version parsing",
    );
}

#[test]
fn nothing_is_left_lying_about() {
    only_in(
        &[],
        &["allow(dead_code)", "allow(unused"],
        "delete what is not used",
    );
}
