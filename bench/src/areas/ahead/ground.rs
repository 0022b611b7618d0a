//! The trees, here or on a slow disk, and a directory for what the programs write. All are removed at the end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;
use slowdisk::{Op, SlowDisk, TestMount};
use tempfile::TempDir;

use super::Args;
use super::workload::Tree;
use crate::harness::cache::{FORGET, forget, sync};
use crate::harness::files::{Noise, is_full, no_space, scratch};

/// The trees and the disk that they are on. Fields are dropped in their order.
pub struct Ground {
    root: PathBuf,
    files: u64,
    bytes: u64,
    /// The trees are on this disk.
    slow: Option<(Box<TestMount>, SlowDisk)>,
    /// A directory on this machine's disk, with `out`, `empty`, and the trees if there is no slow disk.
    here: TempDir,
}

/// The remedy if there is no space for the files.
const FEWER: &str = "choose fewer --files or --bytes, or go to a directory elsewhere";

/// Bytes of a disk for each file besides its data.
const BYTES_A_FILE: u64 = 4 << 10;

impl Ground {
    /// Makes the trees.
    pub fn prepare(args: &Args, trees: &[Tree], stop: &Stop) -> Result<Ground, Problem> {
        let files = trees.iter().map(|tree| tree.counts(args.files.0).0).sum();
        let bytes = files * args.bytes.0;
        let need = bytes + files * BYTES_A_FILE;
        // cp and restic write the files again.
        let here = scratch(
            None,
            if args.slow.is_some() {
                bytes
            } else {
                bytes + need
            },
            FEWER,
        )?;
        let (root, slow) = match &args.slow {
            Some(slow) => {
                let (disk, mount) = slow.build(files + 4096, need)?;
                (mount.path().to_owned(), Some((Box::new(mount), disk)))
            }
            None => (here.path().join("trees"), None),
        };
        let ground = Ground {
            root,
            files,
            bytes,
            slow,
            here,
        };
        for directory in [ground.out(), ground.empty(), ground.root.clone()] {
            fs::create_dir_all(&directory).map_err(|e| ground.failed(&directory, e))?;
        }
        ground.fill(args, trees, stop)?;
        Ok(ground)
    }

    fn fill(&self, args: &Args, trees: &[Tree], stop: &Stop) -> Result<(), Problem> {
        let speed = self.slow.as_ref().map(|(_, disk)| disk.full_speed());
        let mut progress = Progress::of_turns(self.files);
        let mut noise = Noise::new(1);
        let mut made = 0;
        for tree in trees {
            let (files, directories) = tree.counts(args.files.0);
            for n in 0..files {
                let directory = self
                    .tree(*tree)
                    .join(format!("directory-{:05}", n % directories));
                let path = directory.join(format!("file-{n:08}"));
                if n < directories {
                    fs::create_dir_all(&directory).map_err(|e| self.failed(&directory, e))?;
                }
                let written = fs::write(&path, noise.bytes(args.bytes.0));
                written.map_err(|e| self.failed(&path, e))?;
                made += 1;
                if made % 1024 == 0 {
                    progress.at(made, "making files".into());
                    if stop.asked() {
                        return Err(Problem::Interrupted);
                    }
                }
            }
        }
        sync(&self.root)?;
        self.take_reads();
        drop(speed);
        Ok(())
    }

    fn failed(&self, path: &Path, e: io::Error) -> Problem {
        match is_full(&e) {
            true => no_space(&self.root, None, FEWER),
            false => Problem::of(format_args!("cannot make {}", path.display()), e),
        }
    }

    /// The root of all trees.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn tree(&self, tree: Tree) -> PathBuf {
        self.root.join(tree.word())
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
        match self.slow {
            Some(_) => "cold: the slow disk's filesystem is mounted anew before each turn",
            None => FORGET,
        }
    }

    /// Drops the trees from the kernel's caches.
    pub fn make_cold(&self) -> Result<(), Problem> {
        match &self.slow {
            Some((mount, _)) => mount.remount().map_err(|e| Problem::Failed(e.to_string())),
            None => forget([self.root.as_path()], self.files, self.bytes, "with --warm"),
        }
    }

    /// The reads of the slow disk since the last call; `None` without a slow disk.
    pub fn take_reads(&self) -> Option<u64> {
        let (_, disk) = self.slow.as_ref()?;
        let log = disk.take_log();
        let reads = log.iter().filter(|entry| entry.op == Op::Read);
        Some(reads.count() as u64)
    }
}
