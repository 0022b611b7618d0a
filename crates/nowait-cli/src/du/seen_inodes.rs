//! The files and directories that were counted. A file with several names counts once, and so does
//! a file below two of the given paths.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nowait::Metadata;

/// The counted files and directories that can be found again. Files with one name are not stored:
/// they can be found again only through their directories, which are stored if several paths were
/// given.
pub struct SeenInodes {
    several: bool,
    any_given: bool,
    files: HashSet<Id>,
    directories: HashSet<Id>,
}

/// The device number and the inode number.
type Id = (u64, u64);

impl SeenInodes {
    /// An empty set. `several` is true if several paths were given.
    pub fn new(several: bool) -> SeenInodes {
        SeenInodes {
            several,
            any_given: false,
            files: HashSet::new(),
            directories: HashSet::new(),
        }
    }

    /// Adds an entry of a tree. Returns true if it is found for the first time.
    pub fn insert(&mut self, stat: &Metadata, is_directory: bool) -> bool {
        let id = (stat.dev(), stat.ino());
        if is_directory {
            !self.several || self.directories.insert(id)
        } else if stat.nlink() > 1 {
            self.files.insert(id)
        } else {
            !self.any_given || !self.files.contains(&id)
        }
    }

    /// Adds the file at a given path. Returns true if it is found for the first time.
    pub fn insert_given(&mut self, path: &Path, stat: &Metadata, is_directory: bool) -> bool {
        if is_directory {
            return self.insert(stat, true);
        }
        if stat.nlink() == 1 && self.has_directory_of(path) {
            return false;
        }
        self.any_given = true;
        self.files.insert((stat.dev(), stat.ino()))
    }

    fn has_directory_of(&self, path: &Path) -> bool {
        let directory = match path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        fs::metadata(directory)
            .is_ok_and(|stat| self.directories.contains(&(stat.dev(), stat.ino())))
    }
}
