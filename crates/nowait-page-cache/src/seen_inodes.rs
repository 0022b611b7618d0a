//! The files that were seen already, so that a file with several names is counted once.

use std::collections::HashSet;

use rustix::fs::{FileType, Stat};

/// The set of seen files, by device and inode number. Only files that can be seen again are stored,
/// so memory does not grow with the number of files that have one name.
#[derive(Debug)]
pub struct SeenInodes {
    may_overlap: bool,
    seen: HashSet<(u64, u64)>,
}

impl SeenInodes {
    /// An empty set. `may_overlap`: a file with one name could be visited twice.
    pub fn new(may_overlap: bool) -> SeenInodes {
        SeenInodes {
            may_overlap,
            seen: HashSet::new(),
        }
    }

    /// Adds a file. Returns true if it is seen for the first time.
    pub fn insert(&mut self, file: &Stat) -> bool {
        self.insert_id(id(file), file.st_nlink)
    }

    /// Adds a file that is no block device. Returns true if it is seen for the first time.
    pub(crate) fn insert_inode(&mut self, device: u64, inode: u64, names: u64) -> bool {
        self.insert_id((device, inode), names)
    }

    fn insert_id(&mut self, id: (u64, u64), names: u64) -> bool {
        let may_be_seen_again = self.may_overlap || names > 1;
        !may_be_seen_again || self.seen.insert(id)
    }
}

/// Device and inode number. A block device can have several nodes with the same pages: its id has
/// the number of the device itself, and an inode number that no file has.
fn id(file: &Stat) -> (u64, u64) {
    match FileType::from_raw_mode(file.st_mode) {
        FileType::BlockDevice => (file.st_rdev, u64::MAX),
        _ => (file.st_dev, file.st_ino),
    }
}
