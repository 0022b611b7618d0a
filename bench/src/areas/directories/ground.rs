//! The directories: one that the user names, or directories that are made here or on a slow disk and
//! removed at the end.

use std::path::{Path, PathBuf};

use nowait::FileType;
use nowait::scan::Scan;
use rustix::fs::{CWD, Mode, OFlags, XattrFlags, mknodat, openat};
use rustix::io::Errno;
use slowdisk::{Entry, SlowDisk, TestMount};
use tempfile::TempDir;

use super::Args;
use super::count::Count;
use crate::harness::cache::{FORGET, forget, sync};
use crate::harness::files::{no_space, scratch};
use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;

/// The directories and the disk that they are on. Dropping it removes everything that was made.
pub struct Ground {
    pub directories: Vec<Directory>,
    /// True if the user's directory has subdirectories.
    pub subdirectories: bool,
    place: Place,
    empty: TempDir,
}

/// One directory to be listed.
pub struct Directory {
    pub path: PathBuf,
    pub files: u64,
}

/// The disk of the directories. Fields are dropped in their order.
enum Place {
    User,
    Made {
        _directory: TempDir,
    },
    Slow {
        mount: Box<TestMount>,
        disk: SlowDisk,
    },
}

/// Bytes of a slow disk for each file.
const BYTES_A_FILE: u64 = 4 << 10;

impl Ground {
    /// Finds or makes the directories.
    pub fn prepare(args: &Args, stop: &Stop) -> Result<Ground, Problem> {
        let empty = scratch(Some(&std::env::temp_dir()), 0, FEWER)?;
        let mut ground = Ground {
            directories: Vec::new(),
            subdirectories: false,
            place: Place::User,
            empty,
        };
        if let Some(path) = &args.dir {
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
            ground.subdirectories = subdirectories;
            // The path is an argument of programs, and must not look like an option: find(1) has -delete,
            // and no `--` to end its options.
            let dash = path.as_os_str().as_encoded_bytes().starts_with(b"-");
            let path = if dash {
                Path::new(".").join(path)
            } else {
                path.clone()
            };
            ground.directories.push(Directory { path, files });
            return Ok(ground);
        }
        let root = match &args.slow {
            Some(slow) => {
                let files = args.counts().iter().map(|count| count.0).sum();
                let (disk, mount) = slow.build(files, files * BYTES_A_FILE)?;
                let root = mount.path().to_owned();
                ground.place = Place::Slow {
                    mount: Box::new(mount),
                    disk,
                };
                root
            }
            None => {
                let made = scratch(None, 0, FEWER)?;
                let root = made.path().to_owned();
                ground.place = Place::Made { _directory: made };
                root
            }
        };
        ground.fill(&root, args, stop)?;
        Ok(ground)
    }

    /// Makes the files.
    fn fill(&mut self, root: &Path, args: &Args, stop: &Stop) -> Result<(), Problem> {
        let speed = match &self.place {
            Place::Slow { disk, .. } => Some(disk.full_speed()),
            _ => None,
        };
        let counts = args.counts();
        let total = counts.iter().map(|count| count.0).sum();
        let mut progress = Progress::of_turns(total);
        let mut made = 0;
        for Count(files) in counts {
            let path = root.join(format!("{files}"));
            make(&path, files, args.xattr, |n| {
                progress.at(made + n, "making files".into());
                match stop.asked() {
                    true => Err(Problem::Interrupted),
                    false => Ok(()),
                }
            })?;
            made += files;
            self.directories.push(Directory { path, files });
        }
        sync(root)?;
        if let Place::Slow { disk, .. } = &self.place {
            disk.take_log();
        }
        drop(speed);
        Ok(())
    }

    /// An empty directory. A program runs on it first, so that the program itself is cached.
    pub fn empty(&self) -> &Path {
        self.empty.path()
    }

    /// How directories are made cold.
    pub fn how(&self) -> &'static str {
        match self.place {
            Place::Slow { .. } => {
                "cold: the slow disk's filesystem is mounted anew before each turn"
            }
            _ => FORGET,
        }
    }

    /// Drops the directories from the kernel's caches.
    pub fn make_cold(&self) -> Result<(), Problem> {
        match &self.place {
            Place::Slow { mount, .. } => {
                mount.remount().map_err(|e| Problem::Failed(e.to_string()))
            }
            Place::User | Place::Made { .. } => {
                let files = self.directories.iter().map(|d| d.files).sum();
                let paths = self.directories.iter().map(|d| d.path.as_path());
                forget(paths, files, 0, "with --warm")
            }
        }
    }

    /// The requests of a slow disk since the last call; `None` without a slow disk.
    pub fn take_log(&self) -> Option<Vec<Entry>> {
        match &self.place {
            Place::Slow { disk, .. } => Some(disk.take_log()),
            _ => None,
        }
    }
}

/// The remedy if there is no space for the files.
const FEWER: &str = "choose fewer --files, or go to a directory elsewhere";

/// Makes a directory with this many empty files.
fn make(
    path: &Path,
    files: u64,
    xattr: bool,
    mut going_on: impl FnMut(u64) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let failed = |what: &Path, e: Errno| match e {
        Errno::NOSPC | Errno::DQUOT => no_space(path.parent().unwrap_or(path), None, FEWER),
        e => Problem::of(format_args!("cannot make {}", what.display()), e),
    };
    rustix::fs::mkdir(path, Mode::RWXU).map_err(|e| failed(path, e))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, path, flags, Mode::empty()).map_err(|e| failed(path, e))?;
    let mode = Mode::RUSR | Mode::WUSR;
    for n in 0..files {
        if n % 1024 == 0 {
            going_on(n)?;
        }
        let name = format!("file-{n:08}");
        mknodat(
            &directory,
            &name,
            rustix::fs::FileType::RegularFile,
            mode,
            0,
        )
        .map_err(|e| failed(&path.join(&name), e))?;
        if xattr {
            let file = path.join(&name);
            rustix::fs::lsetxattr(&file, "user.nowait", b"a small value", XattrFlags::empty())
                .map_err(|e| failed(&file, e))?;
        }
    }
    Ok(())
}
