//! The files that were seen already, so that a file with several names is counted once.

use std::collections::HashSet;

use rustix::fs::Stat;

use crate::tree::Paths;

/// The seen files, by device and inode number. Only files that can be seen again are stored, so memory
/// does not grow with the number of files that have one name.
pub struct Met {
    any_can_be: bool,
    seen: HashSet<(u64, u64)>,
}

impl Met {
    /// An empty set for the files of these paths.
    pub fn new(paths: &Paths) -> Met {
        Met {
            any_can_be: paths.may_overlap(),
            seen: HashSet::new(),
        }
    }

    /// Returns true if this file is seen for the first time.
    pub fn first(&mut self, file: &Stat) -> bool {
        let again = self.any_can_be || file.st_nlink > 1;
        !again || self.seen.insert((file.st_dev, file.st_ino))
    }
}
