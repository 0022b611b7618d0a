//! The trees, here or on a slow disk, and a directory for what the programs write. All are removed
//! at the end.

use std::fs;
use std::path::{Path, PathBuf};

use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use tempfile::TempDir;

use super::workload::Tree;
use crate::harness::contender::Word;
use crate::harness::count::Count;
use crate::harness::directory::{BYTES_A_FILE, Directory};
use crate::harness::files::scratch;
use crate::harness::slow::Slow;

/// The trees and the disk that they are on. Fields are dropped in their order.
pub struct Ground {
    files: u64,
    bytes: u64,
    pub trees: Directory,
    /// A directory on this machine's disk, with `out`, `empty`, and the trees if there is no slow
    /// disk.
    here: TempDir,
}

const FEWER: &str = "choose fewer --files or --bytes, or go to a directory elsewhere";

impl Ground {
    /// Makes the trees, each with so many files of this size.
    pub fn prepare(
        trees: &[Tree],
        (Count(count), Size(size)): (Count, Size),
        slow: Option<&Slow>,
        stop: &Stop,
    ) -> Result<Ground, Problem> {
        let files = trees.iter().map(|tree| tree.counts(count).0).sum();
        let bytes = files * size;
        let need = bytes + files * BYTES_A_FILE;
        // cp and restic write the files again.
        let of_trees = if slow.is_some() { 0 } else { need };
        let here = scratch(None, bytes + of_trees, FEWER)?;
        let directory = match slow {
            Some(slow) => Directory::make(Some(slow), files + 4096, need, FEWER)?,
            None => Directory::of_user(here.path().join("trees"), FEWER),
        };
        let ground = Ground {
            files,
            bytes,
            trees: directory,
            here,
        };
        for directory in [ground.out(), ground.empty(), ground.root().to_owned()] {
            let made = fs::create_dir_all(&directory);
            made.map_err(|e| ground.trees.failed(&directory, e))?;
        }
        let paths = trees.iter().flat_map(|tree| {
            let (files, directories) = tree.counts(count);
            (0..files).map(move |n| {
                let directory = format!("{}/directory-{:05}", tree.word(), n % directories);
                let path = PathBuf::from(directory).join(format!("file-{n:08}"));
                (path, size)
            })
        });
        ground.trees.fill(&paths.collect::<Vec<_>>(), stop)?;
        Ok(ground)
    }

    /// The root of all trees.
    pub fn root(&self) -> &Path {
        self.trees.path()
    }

    pub fn tree(&self, tree: Tree) -> PathBuf {
        self.root().join(tree.word())
    }

    /// A tree without files. A program reads it first, so that the program itself is cached.
    pub fn empty(&self) -> PathBuf {
        self.here.path().join("empty")
    }

    /// The directory for what programs write.
    pub fn out(&self) -> PathBuf {
        self.here.path().join("out")
    }

    /// Removes what programs have written.
    pub fn clear_out(&self) -> Result<(), Problem> {
        let out = self.out();
        fs::remove_dir_all(&out)
            .and_then(|()| fs::create_dir(&out))
            .map_err(|e| Problem::of(out.display(), e))
    }

    /// How the trees are made cold.
    pub fn how(&self) -> &'static str {
        self.trees.how()
    }

    /// Drops the trees from the kernel's caches.
    pub fn make_cold(&self) -> Result<(), Problem> {
        self.trees.make_cold(self.files, self.bytes, "with --warm")
    }
}
