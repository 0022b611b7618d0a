//! The programs, and the states of the page cache.

use clap::ValueEnum;

use crate::harness::contender::{Fit, Word, installed};

/// The programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// tar -c, into a pipe
    Tar,
    /// cp -a, and syncfs(2)
    Cp,
    /// rsync -a, and syncfs(2)
    Rsync,
    /// grep -r for a word that is in no file
    Grep,
    /// sha256sum of all files
    Sha256sum,
    /// borg create in a new repository, and syncfs(2)
    Borg,
    /// restic backup in a new repository, and syncfs(2)
    Restic,
}

/// The states of the page cache before a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum State {
    /// Nothing of the tree is cached
    Cold,
    /// Every second file and the first half of the others are cached
    Half,
}

impl Program {
    /// The shell script of a turn. `$TREE` is the tree, and `$OUT` an empty directory. A pipe and a
    /// test are there because tar and grep do less if their output is /dev/null.
    pub fn script(self) -> &'static str {
        match self {
            Program::Tar => r#"tar -cf - -C "$TREE" . | cat >/dev/null"#,
            Program::Cp => r#"cp -a "$TREE" "$OUT" && sync -f "$OUT""#,
            Program::Rsync => r#"rsync -a "$TREE" "$OUT" && sync -f "$OUT""#,
            Program::Grep => r#"grep -r 'no file has this' "$TREE"; test $? -eq 1"#,
            Program::Sha256sum => r#"exec find "$TREE" -type f -exec sha256sum {} +"#,
            Program::Borg => {
                r#"borg init -e none "$OUT/repository" && borg create "$OUT/repository::a" "$TREE" && sync -f "$OUT""#
            }
            Program::Restic => {
                r#"restic -r "$OUT/repository" -q init && restic -r "$OUT/repository" --no-cache -q backup "$TREE" && sync -f "$OUT""#
            }
        }
    }

    pub fn fits(self) -> Fit {
        match self {
            Program::Cp | Program::Sha256sum => installed(&self.word(), "coreutils"),
            Program::Borg => installed("borg", "borgbackup"),
            _ => installed(&self.word(), &self.word()),
        }
    }
}
