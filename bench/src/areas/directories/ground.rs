//! The directories: the user's own, or such as are made here or on a slow disk and are gone at the end.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nowait::FileType;
use nowait::scan::Scan;
use rustix::fs::{CWD, Mode, OFlags, XattrFlags, mknodat, openat};
use slowdisk::{Entry, Filesystem, SlowDisk, TestMount};
use tempfile::TempDir;

use super::count::Count;
use super::{Args, Slow};
use nowait_cli::problem::Problem;
use nowait_cli::proc::available_memory;
use nowait_cli::progress::Progress;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// Where everything happens. Dropped, all that was made is taken down.
pub struct Ground {
    pub directories: Vec<Directory>,
    /// Of the user's directory.
    pub subdirectories: bool,
    place: Place,
    empty: TempDir,
}

/// One directory to be listed.
pub struct Directory {
    pub path: PathBuf,
    pub files: u64,
}

/// Fields are dropped in their order.
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

/// Bytes of a slow disk per file, and for what a filesystem takes for itself. What is not written takes
/// no memory.
const BYTES_A_FILE: u64 = 4 << 10;
const BYTES_FOR_ITSELF: u64 = 1 << 30;

impl Ground {
    /// Finds or makes the directories.
    pub fn prepare(args: &Args, stop: &Stop) -> Result<Ground, Problem> {
        let empty = tempfile::tempdir().map_err(|e| Problem::of("cannot make a directory", e))?;
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
            // Programs are given it as a word, which must not be an option: find(1) has -delete, and
            // no `--` that would end its options.
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
                let (disk, mount) = slow.build(args.counts().iter().map(|count| count.0).sum())?;
                let root = mount.path().to_owned();
                ground.place = Place::Slow {
                    mount: Box::new(mount),
                    disk,
                };
                root
            }
            None => {
                let made = tempfile::Builder::new()
                    .prefix("nowait-bench-dir-")
                    .tempdir_in(".")
                    .map_err(|e| Problem::of("cannot make a directory here", e))?;
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

    /// An empty directory, of which a program's first run is: it brings the program into memory.
    pub fn empty(&self) -> &Path {
        self.empty.path()
    }

    /// How directories are made cold.
    pub fn how(&self) -> &'static str {
        match self.place {
            Place::Slow { .. } => {
                "cold: the slow disk's filesystem is mounted anew before each turn"
            }
            _ => "cold: syncfs(2), and 3 into /proc/sys/vm/drop_caches before each turn",
        }
    }

    /// Has the kernel forget the directories.
    pub fn make_cold(&self) -> Result<(), Problem> {
        match &self.place {
            Place::Slow { mount, .. } => {
                mount.remount().map_err(|e| Problem::Failed(e.to_string()))
            }
            Place::User | Place::Made { .. } => {
                self.directories.iter().try_for_each(|d| sync(&d.path))?;
                std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|e| {
                    Problem::Failed(format!(
                        "cannot write /proc/sys/vm/drop_caches: {e}; run it as root, or with --warm"
                    ))
                })
            }
        }
    }

    /// What a slow disk was asked for since the last time; `None` of any other.
    pub fn take_log(&self) -> Option<Vec<Entry>> {
        match &self.place {
            Place::Slow { disk, .. } => Some(disk.take_log()),
            _ => None,
        }
    }
}

impl Slow {
    /// Makes it, with a filesystem that has room for so many files.
    fn build(&self, files: u64) -> Result<(SlowDisk, TestMount), Problem> {
        let size = files * BYTES_A_FILE;
        if let Some(memory) = available_memory()
            && size > memory / 2
        {
            return Err(Problem::Usage(format!(
                "{files} files may take {} of a disk in memory, {} are free: choose fewer --files",
                Size(size),
                Size(memory)
            )));
        }
        let failed = |e: slowdisk::Error| Problem::Failed(e.to_string());
        let disk = SlowDisk::builder()
            .size(BYTES_FOR_ITSELF + size)
            .latency(self.latency.time())
            .seek(self.seek.time())
            .queue(usize::from(self.queue))
            .build()
            .map_err(failed)?;
        let mut mount = TestMount::builder(self.filesystem);
        if self.filesystem == Filesystem::Ext4 {
            // By itself it makes an inode for every 16 KiB.
            mount = mount.mkfs_arg(format!("-N{}", files + files / 8 + 1024));
        }
        let mount = mount.on(&disk).map_err(failed)?;
        Ok((disk, mount))
    }
}

/// A directory with so many empty files.
fn make(
    path: &Path,
    files: u64,
    xattr: bool,
    mut going_on: impl FnMut(u64) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let failed = |what: &Path, e: rustix::io::Errno| {
        Problem::of(format_args!("cannot make {}", what.display()), e)
    };
    std::fs::create_dir(path).map_err(|e| Problem::of(path.display(), e))?;
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
                .map_err(|e| Problem::of(format_args!("setxattr {}", file.display()), e))?;
        }
    }
    Ok(())
}

/// Writes a filesystem's changes back, and no other's.
fn sync(path: &Path) -> Result<(), Problem> {
    File::open(path)
        .and_then(|file| Ok(rustix::fs::syncfs(file.as_fd())?))
        .map_err(|e| Problem::of(format_args!("cannot sync {}", path.display()), e))
}
