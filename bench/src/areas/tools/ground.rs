//! The trees on the disk, and their state in the page cache.

use std::path::Path;

use super::tree::{Scale, Table, Tree};
use crate::harness::cache::{resident, warm};
use crate::harness::directory::{BYTES_A_FILE, Directory};
use crate::harness::files::open;
use nowait_cli::problem::Problem;
use nowait_cli::proc::available_memory;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// The trees. Dropping it removes them.
pub struct Ground {
    pub trees: Vec<Tree>,
    /// A program runs on it first, so that the program itself is cached.
    pub empty: Tree,
    directory: Directory,
}

/// The remedy for a user without root.
pub const CACHED: &str = "choose --tables fincore,tiny";

const SMALLER: &str = "choose a smaller --scale or fewer --tables, or go to a directory elsewhere";

impl Ground {
    /// Makes the trees of these tables.
    pub fn prepare(tables: &[Table], scale: Scale, stop: &Stop) -> Result<Ground, Problem> {
        let trees: Vec<Tree> = tables.iter().map(|table| table.tree(scale)).collect();
        let need = |tree: &Tree| tree.bytes() + tree.files.len() as u64 * BYTES_A_FILE;
        let directory = Directory::make(None, 0, trees.iter().map(need).sum(), SMALLER)?;
        let largest = trees.iter().map(Tree::bytes).max().unwrap_or(0);
        if let Some(memory) = available_memory()
            && largest > memory / 2
        {
            return Err(Problem::Failed(format!(
                "{} to read, {} of memory free: the files would not stay in the page cache; choose a \
                 smaller --scale or fewer --tables",
                Size(largest),
                Size(memory),
            )));
        }
        let empty = Tree::empty();
        let files: Vec<_> = trees
            .iter()
            .chain([&empty])
            .flat_map(|tree| tree.files.clone())
            .collect();
        directory.fill(&files, stop)?;
        Ok(Ground {
            trees,
            empty,
            directory,
        })
    }

    /// The directory of all trees, in which the programs run.
    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    /// Reads the files of a tree that are not cached.
    pub fn cache(&self, tree: &Tree, stop: &Stop) -> Result<(), Problem> {
        for (path, size) in &tree.files {
            warm(&open(&self.root().join(path))?, *size)?;
            if stop.asked() {
                break;
            }
        }
        Ok(())
    }

    /// Drops a tree from the caches of the kernel.
    pub fn forget(&self, tree: &Tree) -> Result<(), Problem> {
        let files = tree.files.len() as u64;
        self.directory.make_cold(files, tree.bytes(), CACHED)
    }

    /// The share of a tree's pages that are cached, in per cent; `None` if the kernel does not
    /// report it.
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
