//! The directories, which are made here or on a slow disk and removed at the end.

use std::path::{Path, PathBuf};

use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;
use tempfile::TempDir;

use crate::harness::directory::{BYTES_A_FILE, Directory};
use crate::harness::files::scratch;
use crate::harness::slow::Slow;

/// The directories and the disk that they are on. Dropping it removes everything that was made.
pub struct Ground {
    /// The directories to be listed, with their numbers of files.
    pub directories: Vec<(PathBuf, u64)>,
    /// The directory that has them.
    pub root: Directory,
    empty: TempDir,
}

const FEWER: &str = "choose fewer --files, or go to a directory elsewhere";

impl Ground {
    /// Makes a directory for each of these numbers of files.
    pub fn prepare(counts: &[u64], slow: Option<&Slow>, stop: &Stop) -> Result<Ground, Problem> {
        let empty = scratch(Some(&std::env::temp_dir()), 0, FEWER)?;
        let total: u64 = counts.iter().sum();
        let root = Directory::make(slow, total, total * BYTES_A_FILE, FEWER)?;
        let paths = counts.iter().flat_map(|&files| {
            (0..files).map(move |n| (PathBuf::from(format!("{files}/file-{n:08}")), 0))
        });
        root.fill(&paths.collect::<Vec<_>>(), stop)?;
        let directory = |files: &u64| (root.path().join(files.to_string()), *files);
        Ok(Ground {
            directories: counts.iter().map(directory).collect(),
            root,
            empty,
        })
    }

    /// An empty directory. A program runs on it first, so that the program itself is cached.
    pub fn empty(&self) -> &Path {
        self.empty.path()
    }

    /// Drops the directories from the kernel's caches.
    pub fn make_cold(&self) -> Result<(), Problem> {
        let files = self.directories.iter().map(|(_, files)| files).sum();
        self.root.make_cold(files, 0, "with --warm")
    }
}
