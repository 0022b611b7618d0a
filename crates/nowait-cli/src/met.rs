//! Files that were met already: one that has several names counts once.

use std::collections::HashSet;

use rustix::fs::Stat;

use crate::tree::Paths;

/// Remembers files by device and inode, but only those that can be met again: memory does not grow
/// with a tree of ordinary files.
pub struct Met {
    any_can_be: bool,
    seen: HashSet<(u64, u64)>,
}

impl Met {
    /// Nothing was met yet.
    pub fn new(paths: &Paths) -> Met {
        Met {
            any_can_be: paths.may_overlap(),
            seen: HashSet::new(),
        }
    }

    /// Whether this file is met for the first time.
    pub fn first(&mut self, file: &Stat) -> bool {
        let again = self.any_can_be || file.st_nlink > 1;
        !again || self.seen.insert((file.st_dev, file.st_ino))
    }
}
