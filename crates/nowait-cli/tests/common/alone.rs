//! A program alone and under `nowait run`, in each mode.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::program::{all_libraries, compile, open_directory, run, word};

/// The ways in which a program is run. The first one is without `nowait run`.
pub const MODES: [&[&str]; 8] = [
    &[],
    &["--ahead"],
    &["--data"],
    &["--keep-cache"],
    &["--stats"],
    &["--learn=alone"],
    // With a profile.
    &["--learn=alone"],
    &["--aio"],
];

/// A program that hides the control groups, so that files are surveyed, and executes its arguments.
pub fn without_groups() -> &'static str {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    word(PROGRAM.get_or_init(|| compile("cc", "without_groups.c", &["-D_GNU_SOURCE"], directory)))
}

/// The program, and a place for profiles.
pub struct Alone {
    pub program: PathBuf,
    pub directory: TempDir,
}

impl Alone {
    pub fn new() -> Alone {
        Alone::of("alone.c")
    }

    /// A program of the machine.
    pub fn named(program: &str) -> Alone {
        Alone {
            program: program.into(),
            directory: open_directory(),
        }
    }

    /// A program of tests/c.
    pub fn of(source: &str) -> Alone {
        let directory = open_directory();
        let words = ["-std=gnu11", "-D_GNU_SOURCE"];
        let program = compile("cc", source, &words, directory.path());
        Alone { program, directory }
    }

    /// The program in a mode, with `before` in front of all.
    pub fn command(&self, mode: &[&str], before: &[&str], words: &[&str]) -> Command {
        let mut all: Vec<&str> = before.to_vec();
        if !mode.is_empty() {
            all.extend([env!("CARGO_BIN_EXE_nowait"), "run"]);
            all.extend(mode);
            all.push("--");
        }
        all.push(word(&self.program));
        all.extend(words);
        let mut command = Command::new(all[0]);
        command.args(&all[1..]);
        command.env("NOWAIT_LIBRARY_DIR", all_libraries());
        command.env("XDG_CACHE_HOME", self.directory.path());
        command.current_dir("/usr");
        command
    }

    /// Compares what the program prints in each mode.
    pub fn compare(&self, before: &[&str], words: &[&str]) -> String {
        let said = |mode: &&[&str]| {
            let said = run(&mut self.command(mode, before, words));
            assert_eq!(said.code, Some(0), "{mode:?}: {said:?}");
            said.text().to_owned()
        };
        let all: Vec<String> = MODES.iter().map(said).collect();
        for (mode, said) in MODES.iter().zip(&all) {
            assert_eq!(*said, all[0], "{mode:?}");
        }
        if rustix::process::geteuid().is_root() {
            let before = [&[without_groups()], before].concat();
            let surveyed = run(&mut self.command(&["--keep-cache"], &before, words));
            assert_eq!(surveyed.code, Some(0), "surveys: {surveyed:?}");
            assert_eq!(surveyed.text(), all[0], "surveys");
        }
        all[0].clone()
    }
}
