//! The trees on the disk, and their state in the page cache.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use tempfile::TempDir;

use super::tree::{Scale, Table, Tree};
use crate::harness::cache::{forget, read_through, resident, sync};
use crate::harness::files::{Noise, STRETCH, is_full, no_space, open, scratch};
use nowait_cli::problem::Problem;
use nowait_cli::proc::available_memory;
use nowait_cli::progress::Progress;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// The trees. Dropping it removes them.
pub struct Ground {
    pub trees: Vec<Tree>,
    /// A program runs on it first, so that the program itself is cached.
    pub empty: Tree,
    directory: TempDir,
}

/// The remedy for a user without root.
pub const CACHED: &str = "choose --tables fincore,tiny";

/// The remedy if there is no space for the trees.
const SMALLER: &str = "choose a smaller --scale, fewer --tables, or a --dir elsewhere";

/// The bytes of a disk that a file takes besides its data, about.
const BLOCK: u64 = 4 << 10;

impl Ground {
    /// Makes the trees of these tables.
    pub fn prepare(
        parent: Option<&Path>,
        tables: &[Table],
        scale: Scale,
        stop: &Stop,
    ) -> Result<Ground, Problem> {
        let trees: Vec<Tree> = tables.iter().map(|table| table.tree(scale)).collect();
        let need = trees
            .iter()
            .map(|tree| tree.bytes() + tree.files.len() as u64 * BLOCK);
        let directory = scratch(parent, need.sum(), SMALLER)?;
        let largest = trees.iter().map(Tree::bytes).max().unwrap_or(0);
        match available_memory() {
            Some(memory) if largest > memory / 2 => {
                return Err(Problem::Failed(format!(
                    "{} to read, {} of memory free: the files would not stay in the page cache; choose a \
                     smaller --scale or fewer --tables",
                    Size(largest),
                    Size(memory),
                )));
            }
            _ => {}
        }
        let ground = Ground {
            trees,
            empty: Tree::empty(),
            directory,
        };
        ground.make(stop)?;
        Ok(ground)
    }

    /// The directory of all trees, in which the programs run.
    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    fn make(&self, stop: &Stop) -> Result<(), Problem> {
        let total = self.trees.iter().map(Tree::bytes).sum();
        let mut progress = Progress::of_bytes(total);
        let mut noise = Noise::new(u64::from(std::process::id()));
        let (mut done, mut synced) = (0, 0);
        for tree in self.trees.iter().chain([&self.empty]) {
            let directories = tree.files.iter().filter_map(|(path, _)| path.parent());
            for directory in directories.collect::<BTreeSet<_>>() {
                let made = fs::create_dir_all(self.root().join(directory));
                made.map_err(|e| self.failed(directory, e))?;
            }
            for (path, size) in &tree.files {
                let failed = |e| self.failed(path, e);
                let mut file = File::create_new(self.root().join(path)).map_err(failed)?;
                let mut left = *size;
                while left > 0 {
                    let piece = noise.bytes(left);
                    file.write_all(piece).map_err(failed)?;
                    left -= piece.len() as u64;
                    done += piece.len() as u64;
                    progress.at(done, "making files".into());
                    if stop.asked() {
                        return Err(Problem::Interrupted);
                    }
                    if done - synced >= STRETCH {
                        sync(self.root())?;
                        synced = done;
                    }
                }
            }
        }
        sync(self.root())
    }

    fn failed(&self, path: &Path, e: io::Error) -> Problem {
        match is_full(&e) {
            true => no_space(self.root(), None, SMALLER),
            false => Problem::of(format_args!("cannot make {}", path.display()), e),
        }
    }

    /// Reads the files of a tree that are not cached.
    pub fn cache(&self, tree: &Tree, stop: &Stop) -> Result<(), Problem> {
        for (path, size) in &tree.files {
            let file = open(&self.root().join(path))?;
            let file = std::slice::from_ref(&file);
            if resident(file).is_none_or(|cached| cached < *size) {
                read_through(&file[0], *size)?;
            }
            if stop.asked() {
                break;
            }
        }
        Ok(())
    }

    /// Drops a tree from the caches of the kernel.
    pub fn forget(&self, tree: &Tree) -> Result<(), Problem> {
        forget([self.root()], tree.files.len() as u64, tree.bytes(), CACHED)
    }

    /// The share of a tree's pages that are cached, in per cent; `None` if the kernel does not report it.
    pub fn cached(&self, tree: &Tree) -> Result<Option<f64>, Problem> {
        let (mut cached, mut all) = (0, 0);
        for (path, size) in &tree.files {
            let file = open(&self.root().join(path))?;
            let Some(of_file) = resident(&[file]) else {
                return Ok(None);
            };
            cached += of_file.min(*size);
            all += size;
        }
        Ok(Some(100.0 * cached as f64 / all.max(1) as f64))
    }
}
