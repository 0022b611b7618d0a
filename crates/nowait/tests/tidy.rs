//! Tests of the sources: the rules of ARCHITECTURE.md and the style of CONTRIBUTING.md.

use std::path::{Path, PathBuf};

/// Every Rust file of the library: its path below `src`, and its text without the unit tests.
fn sources() -> Vec<(PathBuf, String)> {
    let found = sources_of("nowait");
    assert!(found.len() > 20, "the library has more files than that");
    found
}

/// The same for a crate of this name.
fn sources_of(name: &str) -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let root = crates.join(name).join("src");
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
fn each_file_allows_its_own_unsafe_code() {
    let words = ["unsafe {", "unsafe fn", "unsafe impl"];
    for (path, text) in sources() {
        let uses = code(&text).any(|(_, line)| words.iter().any(|word| line.contains(word)));
        let allows = text.contains("#![allow(unsafe_code)]");
        assert_eq!(uses, allows, "{}: uses it, and allows it", path.display());
    }
}

/// The paths in backticks of one of the project's documents.
fn paths_of(document: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(document)).unwrap();
    let quoted = text.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|word| word.ends_with(".rs") || word.ends_with(".sh"));
    paths.map(str::to_owned).collect()
}

#[test]
fn files_that_the_documents_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let homes = [
        "",
        "crates/nowait",
        "crates/nowait/src",
        "crates/nowait-aio",
        "crates/nowait-aio/src",
        "crates/nowait-capi",
        "crates/nowait-capi/src",
        "crates/nowait-cli/src",
        "crates/nowait-object-store/src",
        "crates/nowait-page-cache/src",
    ];
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/decisions.md"] {
        for path in paths_of(document) {
            let exists = homes
                .iter()
                .any(|home| root.join(home).join(&path).exists());
            assert!(exists, "{document}: {path}");
        }
    }
}

#[test]
fn the_map_of_tasks_has_ten_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    let map = text.split("## Where do I change").nth(1).unwrap();
    let map = map.split("\n## ").next().unwrap();
    let tasks: Vec<&str> = map
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .collect();
    assert!(tasks.len() >= 10);
    for task in tasks {
        let paths: Vec<&str> = task.split('`').skip(1).step_by(2).collect();
        assert!(!paths.is_empty(), "{task}");
        for path in paths {
            assert!(root.join(path).exists(), "{task}");
        }
    }
}

#[test]
fn the_architecture_fits_on_a_few_pages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    // Rows of tables are lines, so words are counted.
    assert!(text.split_whitespace().count() <= 4500);
}

/// The Rust files of all crates, and the documents: their paths below the checkout, and their texts. `nowait
/// ls` is not among them, nor are files of this name, which list the refused words.
fn texts() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let homes = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs",
        "man",
        "scripts",
        "crates/nowait",
        "crates/nowait-ahead-policy",
        "crates/nowait-aio",
        "crates/nowait-capi",
        "crates/nowait-cli",
        "crates/nowait-object-store",
        "crates/nowait-page-cache",
        "crates/nowait-residency",
        "crates/nowait-serve-dir",
        "crates/powercut",
        "crates/slowdisk",
        "crates/test-support",
        "examples",
        "fuzz/fuzz_targets",
        "python/src",
        "python/tests",
        "python/package",
        "bench/src",
        "bench/tests",
    ];
    let unchecked = |path: &Path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        name == "tidy" || name == "target"
    };
    let mut paths = homes.map(|home| root.join(home)).to_vec();
    let mut texts = Vec::new();
    while let Some(path) = paths.pop() {
        if unchecked(&path) {
            continue;
        }
        if path.is_dir() {
            paths.extend(std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()));
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            texts.push((path.strip_prefix(&root).unwrap().to_owned(), text));
        }
    }
    assert!(texts.len() > 300, "{} files", texts.len());
    texts
}

/// Fails with all lines for which `find` returns something. `find` gets the path and the line.
fn refuse<T: std::fmt::Display>(find: impl Fn(&Path, &str) -> Option<T>) {
    let mut wrong = Vec::new();
    for (path, text) in texts() {
        for (n, line) in text.lines().enumerate() {
            if let Some(found) = find(&path, line) {
                wrong.push(format!("{}:{}: {found}", path.display(), n + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The words of a line: letters, digits and `_`.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The comment of a line of Rust code, or a whole line of another file.
fn prose<'a>(path: &Path, line: &'a str) -> Option<&'a str> {
    match path.extension().is_some_and(|e| e == "rs") {
        true => line.split_once("//").map(|(_, comment)| comment),
        false => Some(line),
    }
}

#[test]
fn comments_do_not_begin_with_a_relative_clause() {
    let first = ["What", "Whatever", "Whether", "Who", "Whose", "Where"];
    refuse(|path, line| {
        let comment = line.trim_start().strip_prefix("//");
        let is_rust = path.extension().is_some_and(|e| e == "rs");
        let text = comment
            .filter(|_| is_rust)?
            .trim_start_matches(['/', '!', ' ']);
        let word = words(text).next()?;
        first.contains(&word).then(|| text.to_owned())
    });
}

#[test]
fn the_old_names_are_gone() {
    let old = [
        "Parcel",
        "Flight",
        "Mailbox",
        "Trip",
        "Crew",
        "Asker",
        "Trying",
        "Hopeless",
        "Untold",
        "Sweep",
        "Learnt",
        "get_token",
        "MOST",
        "Told",
        "scouts",
        "Wish",
        "Wished",
        "Bringer",
        "bringer",
        "brought",
        "Met",
        "Witness",
        "Witnesses",
        "Pace",
        "Subject",
        "Trial",
        "Trials",
        "Verdict",
        "Remark",
        "Remarks",
        "Holder",
        "Holders",
        "Unopened",
    ];
    // The names are the library's. A ratio of the benchmarks has a `Verdict`.
    refuse(|path, line| {
        let is_bench = path.starts_with("bench");
        let in_source = !is_bench && path.components().any(|part| part.as_os_str() == "src");
        words(line)
            .find(|word| in_source && old.contains(word))
            .map(str::to_owned)
    });
}

#[test]
fn prose_names_the_subject() {
    refuse(|path, line| {
        let text = prose(path, line)?.to_lowercase();
        // The user of that name is no pronoun.
        let text = text.replace("user nobody", "").replace("nobody.rs", "");
        let refused = ["nobody", "somebody", "whoever"];
        words(&text)
            .find(|word| refused.contains(word))
            .map(str::to_owned)
    });
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
fn names_are_printed_without_their_control_sequences() {
    // `nowait::DisplayPath` quotes them. Standard error is written by messages.rs, which quotes the rest.
    let refused = [".display()", "println!", "eprint", "print!("];
    let mut wrong = Vec::new();
    for name in ["nowait-cli", "nowait-page-cache", "nowait-ahead-policy"] {
        for (path, text) in sources_of(name) {
            let lines = code(&text).filter(|(_, line)| refused.iter().any(|it| line.contains(it)));
            let lines =
                lines.map(|(n, line)| format!("{name}/{}:{n}: {}", path.display(), line.trim()));
            wrong.extend(lines);
        }
    }
    assert!(
        wrong.is_empty(),
        "print names by DisplayPath:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_fork_finds_no_lock_of_the_standard_library() {
    // They wait for the thread that is at it, which is not there in a forked child. What is asked once
    // is kept in cells of `once_cell::race`, threads are started by `sys::spawn`.
    let words = ["OnceLock", "LazyLock", "thread::Builder", "thread::spawn("];
    // The model checker's own threads.
    let homes = ["sys/sync.rs"];
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
