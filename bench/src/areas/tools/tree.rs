//! The trees: how many files each has, and of which sizes.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use serde::Serialize;

use crate::harness::contender::Word;
use nowait_cli::scramble::mix;

/// The tables, each with a tree of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// 8 GiB in 44 files, all cached: nowait fincore, vmtouch, util-linux fincore
    Fincore,
    /// 10,000 files of up to 6 KB, all cached: the same programs
    Tiny,
    /// 4 GiB in 15,727 files of 4 KiB to 1 GiB, not cached: nowait warm, vmtouch -t, cat
    Warm,
    /// 20,000 files of up to 32 KiB, not cached, with their inodes: the same programs
    Small,
}

/// The work of the programs of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Count the cached pages of cached files.
    Count,
    /// Read uncached files into the page cache.
    Read,
}

/// The share of the files and bytes that are made.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct Scale(f64);

/// A tree of files. Paths are relative to the directory that has all trees.
#[derive(Debug)]
pub struct Tree {
    pub name: String,
    /// The files with their sizes.
    pub files: Vec<(PathBuf, u64)>,
}

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;

impl Table {
    pub fn work(self) -> Work {
        match self {
            Table::Fincore | Table::Tiny => Work::Count,
            Table::Warm | Table::Small => Work::Read,
        }
    }

    /// The tree of the table.
    pub fn tree(self, scale: Scale) -> Tree {
        let sizes: Vec<u64> = match self {
            Table::Fincore => scale.classes(&[(G, 4), (128 * M, 24), (64 * M, 16)]),
            Table::Tiny => (0..scale.of(10_000)).map(|n| mix(n) % 6000 + 1).collect(),
            Table::Warm => scale.classes(&[
                (G, 1),
                (256 * M, 4),
                (64 * M, 8),
                (16 * M, 34),
                (4 * M, 64),
                (M, 256),
                (256 * K, 1024),
                (64 * K, 2048),
                (16 * K, 4096),
                (4 * K, 8192),
            ]),
            Table::Small => (0..scale.of(20_000))
                .map(|n| mix(n) % (32 * K) + 1)
                .collect(),
        };
        // In `warm` each directory has large and small files.
        let directory = |n: usize| match self {
            Table::Fincore => None,
            Table::Tiny => Some(n / 1000),
            Table::Warm => Some(n % 100),
            Table::Small => Some(n / 100),
        };
        let path = |n: usize| {
            let mut path = PathBuf::from(self.word());
            path.extend(directory(n).map(|directory| directory.to_string()));
            path.join(n.to_string())
        };
        let files = sizes.into_iter().enumerate();
        Tree {
            name: self.word(),
            files: files.map(|(n, size)| (path(n), size)).collect(),
        }
    }
}

impl Scale {
    /// The share of a number of files, at least one.
    fn of(self, count: u64) -> u64 {
        ((count as f64 * self.0) as u64).max(1)
    }

    /// The sizes of the files of classes, which are sizes with a number of files. A class whose
    /// share is less than one file has one smaller file.
    fn classes(self, classes: &[(u64, u64)]) -> Vec<u64> {
        let of_class = |&(size, count): &(u64, u64)| {
            let share = (count as f64 * self.0).min(1.0);
            let size = ((size as f64 * share) as u64).max(1);
            std::iter::repeat_n(size, self.of(count) as usize)
        };
        classes.iter().flat_map(of_class).collect()
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Scale, String> {
        match text.parse() {
            Ok(scale) if (0.001..=1.0).contains(&scale) => Ok(Scale(scale)),
            _ => Err("give a number from 0.001 to 1".into()),
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Tree {
    /// A tree with one empty file.
    pub fn empty() -> Tree {
        Tree {
            name: "empty".into(),
            files: vec![("empty/0".into(), 0)],
        }
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, size)| size).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_the_documented_sizes() {
        let whole = |table: Table| {
            let tree = table.tree("1".parse().unwrap());
            let most = tree.files.iter().map(|(_, size)| *size).max();
            (tree.files.len(), tree.bytes() >> 20, most.unwrap())
        };
        assert_eq!(whole(Table::Fincore), (44, 8 << 10, G));
        assert_eq!(whole(Table::Tiny).0, 10_000);
        assert!(whole(Table::Tiny).2 <= 6000);
        assert_eq!((whole(Table::Warm).0, whole(Table::Warm).2), (15_727, G));
        assert_eq!(whole(Table::Warm).1, 4 << 10);
        assert_eq!(whole(Table::Small).0, 20_000);
        assert!(whole(Table::Small).2 <= 32 << 10);
    }

    #[test]
    fn a_scale_is_a_share_of_the_bytes_and_files() {
        for table in Table::value_variants() {
            let whole = table.tree("1".parse().unwrap());
            for scale in [0.25, 0.01, 0.001] {
                let part = table.tree(scale.to_string().parse().unwrap());
                let share = part.bytes() as f64 / whole.bytes() as f64;
                assert!(
                    (scale * 0.4..scale * 1.6).contains(&share),
                    "{table:?}: {share} of {scale}"
                );
                assert!(part.files.len() <= whole.files.len());
            }
        }
        for text in ["0", "1.1", "-1", "x", "NaN", ""] {
            assert!(text.parse::<Scale>().is_err(), "{text}");
        }
    }
}
