//! The directories: one that the user names, or directories that are made here or on a slow disk
//! and removed at the end.

use std::path::{Path, PathBuf};

use nowait::FileType;
use nowait::scan::Scan;
use rustix::fs::{XattrFlags, lsetxattr};
use tempfile::TempDir;

use super::Args;
use crate::harness::cache::sync;
use crate::harness::directory::{BYTES_A_FILE, Directory};
use crate::harness::files::scratch;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;

/// The directories and the disk that they are on. Dropping it removes everything that was made.
pub struct Ground {
    /// The directories to be listed, with their numbers of files.
    pub directories: Vec<(PathBuf, u64)>,
    /// True if the user's directory has subdirectories.
    pub subdirectories: bool,
    /// The directory that has them.
    pub root: Directory,
    empty: TempDir,
}

/// The remedy if there is no space for the files.
const FEWER: &str = "choose fewer --files, or go to a directory elsewhere";

impl Ground {
    /// Finds or makes the directories.
    pub fn prepare(args: &Args, stop: &Stop) -> Result<Ground, Problem> {
        let empty = scratch(Some(&std::env::temp_dir()), 0, FEWER)?;
        match &args.dir {
            Some(path) => Ground::find(path, empty),
            None => Ground::make(args, empty, stop),
        }
    }

    fn find(path: &Path, empty: TempDir) -> Result<Ground, Problem> {
        let (mut files, mut subdirectories) = (0, false);
        for entry in Scan::blocking_open(path)? {
            files += 1;
            subdirectories |= entry?.file_type() == FileType::Dir;
        }
        if files == 0 {
            return Err(Problem::Usage(format!(
                "{} is empty: name a directory with files",
                path.display()
            )));
        }
        // The path is an argument of programs, and must not look like an option: find(1) has
        // -delete, and no `--` to end its options.
        let path = match path.as_os_str().as_encoded_bytes().starts_with(b"-") {
            true => Path::new(".").join(path),
            false => path.to_owned(),
        };
        Ok(Ground {
            directories: vec![(path.clone(), files)],
            subdirectories,
            root: Directory::of_user(path, FEWER),
            empty,
        })
    }

    fn make(args: &Args, empty: TempDir, stop: &Stop) -> Result<Ground, Problem> {
        let counts = args.counts();
        let total: u64 = counts.iter().sum();
        let root = Directory::make(args.slow.as_ref(), total, total * BYTES_A_FILE, FEWER)?;
        let paths = counts.iter().flat_map(|&files| {
            (0..files).map(move |n| (PathBuf::from(format!("{files}/file-{n:08}")), 0))
        });
        let paths: Vec<(PathBuf, u64)> = paths.collect();
        root.fill(&paths, stop)?;
        if args.xattr {
            let speed = root.full_speed();
            for (path, _) in &paths {
                let path = root.path().join(path);
                lsetxattr(&path, "user.nowait", b"a small value", XattrFlags::empty())
                    .map_err(|e| root.failed(&path, e.into()))?;
            }
            sync(root.path())?;
            drop(speed);
        }
        let directory = |files: &u64| (root.path().join(files.to_string()), *files);
        Ok(Ground {
            directories: counts.iter().map(directory).collect(),
            subdirectories: false,
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
