//! What was counted already: a file with several names counts once, and so does what lies below two
//! of the paths that were given.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nowait::Metadata;

/// Remembers only what can be met again. Of ordinary files that is none: they are met again with
/// their directories, which are remembered if there are several paths.
pub struct Met {
    several: bool,
    any_named: bool,
    files: HashSet<Id>,
    directories: HashSet<Id>,
}

/// Major and minor number of the device, and the inode's.
type Id = (u64, u64);

impl Met {
    /// Nothing yet; whether several paths were given.
    pub fn new(several: bool) -> Met {
        Met {
            several,
            any_named: false,
            files: HashSet::new(),
            directories: HashSet::new(),
        }
    }

    /// Whether something that was found is met for the first time.
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

    /// Whether something whose path was given is.
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
