//! The programs that are measured, and the trees that they read.

use clap::ValueEnum;

use crate::harness::contender::{Fit, Word, installed};

/// The programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// ls -lR
    Ls,
    /// find -ls
    Find,
    /// du -s
    Du,
    /// rsync -na to an empty directory
    Rsync,
    /// tar -c, into a pipe
    Tar,
    /// cp -a to this machine's disk
    Cp,
    /// grep -r for a word that is in no file
    Grep,
    /// restic backup, which is written in Go: it is followed by --walk
    Restic,
}

/// The trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tree {
    /// All files in one directory
    One,
    /// The files in directories of at least 50, at most 2,000 directories
    Many,
}

impl Program {
    /// The shell script of a turn. `$TREE` is the tree, and `$OUT` an empty directory. A pipe and a
    /// test are there because tar and grep do less if their output is /dev/null.
    pub fn script(self) -> &'static str {
        match self {
            Program::Ls => r#"exec ls -lR "$TREE""#,
            Program::Find => r#"exec find "$TREE" -ls"#,
            Program::Du => r#"exec du -s "$TREE""#,
            Program::Rsync => r#"exec rsync -na "$TREE" "$OUT/none/""#,
            Program::Tar => r#"tar -cf - -C "$TREE" . | cat >/dev/null"#,
            Program::Cp => r#"exec cp -a "$TREE" "$OUT""#,
            Program::Grep => r#"grep -r 'no file has this' "$TREE"; test $? -eq 1"#,
            Program::Restic => r#"exec restic -r "$OUT/repository" --no-cache -q backup "$TREE""#,
        }
    }

    /// The shell script before a turn, which is not measured.
    pub fn before(self) -> Option<&'static str> {
        (self == Program::Restic).then_some(r#"exec restic -r "$OUT/repository" -q init"#)
    }

    /// True if it reads the data of the files.
    pub fn reads_data(self) -> bool {
        matches!(
            self,
            Program::Tar | Program::Cp | Program::Grep | Program::Restic
        )
    }

    pub fn fits(self) -> Fit {
        match self {
            Program::Find => installed("find", "findutils"),
            Program::Rsync => installed("rsync", "rsync"),
            Program::Tar => installed("tar", "tar"),
            Program::Grep => installed("grep", "grep"),
            Program::Restic => installed("restic", "restic"),
            _ => installed(&self.word(), "coreutils"),
        }
    }
}

impl Tree {
    /// The number of files, and of the directories that have them.
    pub fn counts(self, files: u64) -> (u64, u64) {
        match self {
            Tree::One => (files, 1),
            Tree::Many => (files, (files / 50).clamp(1, 2000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_the_documented_sizes() {
        assert_eq!(Tree::One.counts(100_000), (100_000, 1));
        assert_eq!(Tree::Many.counts(100_000), (100_000, 2000));
        assert_eq!(Tree::Many.counts(10), (10, 1));
        assert_eq!(Tree::Many.counts(1000), (1000, 20));
    }
}
