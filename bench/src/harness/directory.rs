//! The directory with the files of a bench: one that the user names, or one that is made here or on
//! a slow disk and removed at the end.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nowait_cli::noise::Noise;
use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;
use slowdisk::{Entry, FullSpeed, SlowDisk, TestMount};
use tempfile::TempDir;

use super::cache::{FORGET, forget, sync};
use super::files::{STRETCH, is_full, no_space, scratch};
use super::slow::Slow;

/// Bytes of a disk that a file takes besides its data, about.
pub const BYTES_A_FILE: u64 = 4 << 10;

/// A directory. Dropping it removes what was made.
pub struct Directory {
    path: PathBuf,
    disk: Disk,
    /// Tells the user what to do without space.
    remedy: &'static str,
}

/// The disk of a directory. Fields are dropped in their order.
enum Disk {
    Users,
    Here { _made: TempDir },
    Slow(Box<TestMount>, SlowDisk),
}

impl Directory {
    /// An existing directory.
    pub fn of_user(path: PathBuf, remedy: &'static str) -> Directory {
        Directory {
            path,
            disk: Disk::Users,
            remedy,
        }
    }

    /// A new directory with room for so many files with so many bytes.
    pub fn make(
        slow: Option<&Slow>,
        files: u64,
        bytes: u64,
        remedy: &'static str,
    ) -> Result<Directory, Problem> {
        Ok(match slow {
            Some(slow) => {
                let (disk, mount) = slow.build(files, bytes)?;
                Directory {
                    path: mount.path().to_owned(),
                    disk: Disk::Slow(Box::new(mount), disk),
                    remedy,
                }
            }
            None => {
                let made = scratch(None, bytes, remedy)?;
                Directory {
                    path: made.path().to_owned(),
                    disk: Disk::Here { _made: made },
                    remedy,
                }
            }
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A slow disk has no delays until the result is dropped.
    pub fn full_speed(&self) -> Option<FullSpeed> {
        match &self.disk {
            Disk::Slow(_, disk) => Some(disk.full_speed()),
            _ => None,
        }
    }

    /// Makes files of these sizes with random bytes, and their directories. Paths are relative to
    /// this directory.
    pub fn fill(&self, files: &[(PathBuf, u64)], stop: &Stop) -> Result<(), Problem> {
        let speed = self.full_speed();
        let mut progress = Progress::of_turns(files.len() as u64);
        let mut noise = Noise::new(u64::from(std::process::id()));
        let mut directories = HashSet::new();
        let mut written = 0;
        for ((path, size), made) in files.iter().zip(0..) {
            let path = self.path.join(path);
            let failed = |e| self.failed(&path, e);
            if let Some(parent) = path.parent()
                && directories.insert(parent.to_owned())
            {
                fs::create_dir_all(parent).map_err(failed)?;
            }
            let mut file = File::create_new(&path).map_err(failed)?;
            let mut left = *size;
            loop {
                if stop.asked() {
                    return Err(Problem::Interrupted);
                }
                let piece = noise.bytes(left);
                file.write_all(piece).map_err(failed)?;
                left -= piece.len() as u64;
                written += piece.len() as u64;
                if written >= STRETCH {
                    sync(&self.path)?;
                    written = 0;
                }
                if left == 0 {
                    break;
                }
            }
            if made % 1024 == 0 {
                progress.at(made, "making files".into());
            }
        }
        sync(&self.path)?;
        drop(speed);
        self.take_log();
        Ok(())
    }

    /// The message of a file that cannot be made.
    pub fn failed(&self, path: &Path, e: io::Error) -> Problem {
        match is_full(&e) {
            true => no_space(&self.path, None, self.remedy),
            false => Problem::of(format_args!("cannot make {}", path.display()), e),
        }
    }

    /// How [`Directory::make_cold`] makes the directory cold.
    pub fn how(&self) -> &'static str {
        match self.disk {
            Disk::Slow(..) => "cold: the slow disk's filesystem is mounted anew before each turn",
            _ => FORGET,
        }
    }

    /// Drops so many files and bytes from the kernel's caches. `instead` tells the user what works
    /// without root.
    pub fn make_cold(&self, files: u64, bytes: u64, instead: &str) -> Result<(), Problem> {
        match &self.disk {
            Disk::Slow(mount, _) => mount.remount().map_err(|e| Problem::Failed(e.to_string())),
            _ => forget(&self.path, files, bytes, instead),
        }
    }

    /// The requests of a slow disk since the last call; `None` without a slow disk.
    pub fn take_log(&self) -> Option<Vec<Entry>> {
        match &self.disk {
            Disk::Slow(_, disk) => Some(disk.take_log()),
            _ => None,
        }
    }
}
