//! The files and directories that were counted. A file with several names counts once, and so does a file
//! below two of the given paths.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nowait::Metadata;

/// The counted files and directories that can be found again. Files with one name are not stored: they
/// can be found again only through their directories, which are stored if several paths were given.
pub struct Met {
    several: bool,
    any_named: bool,
    files: HashSet<Id>,
    directories: HashSet<Id>,
}

/// The device number and the inode number.
type Id = (u64, u64);

impl Met {
    /// An empty set. `several` is true if several paths were given.
    pub fn new(several: bool) -> Met {
        Met {
            several,
            any_named: false,
            files: HashSet::new(),
            directories: HashSet::new(),
        }
    }

    /// Returns true if an entry of a tree is found for the first time.
    pub fn first(&mut self, stat: &Metadata, is_directory: bool) -> bool {
        let id = (stat.dev(), stat.ino());
        if is_directory {
            !self.several || self.directories.insert(id)
        } else if stat.nlink() > 1 {
            self.files.insert(id)
        } else {
            !self.any_named || !self.files.contains(&id)
        }
    }

    /// Returns true if the file at a given path is found for the first time.
    pub fn first_named(&mut self, path: &Path, stat: &Metadata, is_directory: bool) -> bool {
        if is_directory {
            return self.first(stat, true);
        }
        if stat.nlink() == 1 && self.has_directory_of(path) {
            return false;
        }
        self.any_named = true;
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
