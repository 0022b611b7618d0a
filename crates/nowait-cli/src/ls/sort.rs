//! In which order names are shown.

use std::cmp::{Ordering, Reverse};

use clap::ValueEnum;

use super::row::Row;

/// By what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// By name, byte by byte
    #[default]
    Name,
    /// The largest first
    Size,
    /// The newest first
    Mtime,
    /// As they are found
    None,
}

impl Sort {
    /// Whether statx(2) has to be asked for it.
    pub fn is_by_metadata(self) -> bool {
        matches!(self, Sort::Size | Sort::Mtime)
    }

    /// Which of two comes first. Those that nothing is known of come last.
    pub fn compare(self, a: &Row<'_>, b: &Row<'_>) -> Ordering {
        let key = |row: &Row<'_>| match (self, row.stat) {
            (Sort::Size, Some(stat)) => Some((i128::from(stat.len()), 0)),
            (Sort::Mtime, Some(stat)) => Some((i128::from(stat.mtime()), stat.mtime_nsec())),
            _ => None,
        };
        match self {
            Sort::None => Ordering::Equal,
            _ => (Reverse(key(a)), a.name).cmp(&(Reverse(key(b)), b.name)),
        }
    }
}
