//! The directories that are still to be listed, each before those in it and these in their order.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A way down.
pub struct Descent {
    /// The next one is the last.
    pending: Vec<PathBuf>,
    /// Those that the one that is listed now is in, and their devices and inodes.
    above: Vec<(PathBuf, (u64, u64))>,
}

impl Descent {
    /// From here.
    pub fn from(root: &Path) -> Descent {
        Descent {
            pending: vec![root.to_owned()],
            above: Vec::new(),
        }
    }

    /// The next directory.
    pub fn next(&mut self) -> Option<PathBuf> {
        self.pending.pop()
    }

    /// Whether this one is one of those that it is in.
    pub fn is_circle(&mut self, path: &Path) -> bool {
        self.above.retain(|(above, _)| path.starts_with(above));
        // One that has gone leads nowhere.
        let Ok(stat) = fs::metadata(path) else {
            return false;
        };
        let id = (stat.dev(), stat.ino());
        let circle = self.above.iter().any(|(_, above)| *above == id);
        self.above.push((path.to_owned(), id));
        circle
    }

    /// These are in the directory that was listed last.
    pub fn add(&mut self, directories: Vec<PathBuf>) {
        self.pending.extend(directories.into_iter().rev());
    }
}
