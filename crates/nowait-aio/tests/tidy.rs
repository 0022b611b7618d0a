//! The words of the sources: no name that a standard term has replaced, and no comment that begins with a
//! relative clause.

use std::path::{Path, PathBuf};

/// Words that are not used, whatever their case, alone or as a part of a name.
const WORDS: &[&str] = &[
    "desk", "herald", "inbox", "keeper", "letter", "letters", "nobody", "outbox", "somebody",
    "teller", "tellers", "told", "untold", "whoever",
];

/// Names that are not used, spelled like this.
const NAMES: &[&str] = &[
    "Asked", "Attempt", "Had", "Held", "Home", "Known", "MOST", "Notice", "Woken", "token",
];

/// First words that a line of a comment does not have.
const FIRST_WORDS: &[&str] = &["What", "Whatever", "Where", "Whether", "Who", "Whose"];

/// The files of the crate and its manual page, without this file.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = vec![
        root.join("src"),
        root.join("tests"),
        root.join("build.rs"),
        root.join("Cargo.toml"),
        root.join("../../man/nowait-aio.7"),
    ];
    let mut files = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()));
        } else if !path.ends_with(file!()) {
            let text = std::fs::read_to_string(&path).unwrap();
            files.push((path, text));
        }
    }
    assert!(files.len() > 80, "{} files", files.len());
    files
}

/// Fails with all lines for which `find` returns something.
fn refuse<T: std::fmt::Debug>(find: impl Fn(&str) -> Option<T>) {
    let mut found = Vec::new();
    for (path, text) in sources() {
        for (i, line) in text.lines().enumerate() {
            if let Some(what) = find(line) {
                found.push(format!("{}:{}: {what:?}", path.display(), i + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The words of a line, in lower case: `one_two`, `OneTwo` and `one two` have the same two.
fn words(line: &str) -> Vec<String> {
    let mut spaced = String::new();
    let mut last_is_lower = false;
    for c in line.chars() {
        if c.is_uppercase() && last_is_lower {
            spaced.push(' ');
        }
        spaced.push(if c.is_alphabetic() { c } else { ' ' });
        last_is_lower = c.is_lowercase();
    }
    let lower = spaced.to_lowercase();
    lower.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn replaced_words_are_not_used() {
    assert_eq!(words("an_old BigName*"), ["an", "old", "big", "name"]);
    refuse(|line| {
        words(line)
            .into_iter()
            .find(|word| WORDS.contains(&&**word))
    });
}

#[test]
fn replaced_names_are_not_used() {
    refuse(|line| {
        // A name of another crate follows a dot or a path.
        let mut names = line.split(|c: char| !c.is_alphanumeric() && !"_.:".contains(c));
        names.find(|name| NAMES.contains(name)).map(str::to_owned)
    });
}

#[test]
fn no_comment_begins_with_a_relative_clause() {
    refuse(|line| {
        let line = line.trim_start();
        let comment = ["///", "//!", "//", "/*", "*", "#"]
            .iter()
            .find_map(|marker| line.strip_prefix(marker))?;
        let first = comment
            .trim_start_matches([' ', '-', '*'])
            .split(' ')
            .next()?;
        FIRST_WORDS.contains(&first).then(|| first.to_owned())
    });
}
