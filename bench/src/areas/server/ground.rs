//! The files, and their state in the page cache before each turn.

use std::fs::{self, File};
use std::path::PathBuf;

use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;
use slowdisk::{SlowDisk, TestMount};
use tempfile::TempDir;

use super::Args;
use super::content::{Kind, Name};
use crate::harness::{cache, files, memory};

/// How the state is made, for the report.
pub const HOW: &str = "before each turn the hot files are read through; POSIX_FADV_DONTNEED on the cold ones until none is \
     cached, then as much memory as they need is used and freed. Inodes and names are cached";

/// Files that are open at the same time while they are evicted: fewer than the usual limit of 1024.
const OPEN: usize = 500;

/// The directory with the files. Dropping it removes what was made, unless the user has named it.
pub struct Ground {
    pub root: PathBuf,
    /// The bytes of each file.
    pub size: u64,
    hot: u32,
    cold: u32,
    place: Place,
}

/// The disk of the directory. Fields are dropped in their order.
enum Place {
    User,
    Made {
        _directory: TempDir,
    },
    Slow {
        _mount: Box<TestMount>,
        disk: SlowDisk,
    },
}

/// The remedy if there is no space for the files.
const FEWER: &str = "choose fewer --cold-files or a smaller --size, or go to a directory elsewhere";

impl Ground {
    /// Finds or makes the files.
    pub fn prepare(args: &Args, stop: &Stop) -> Result<Ground, Problem> {
        let count = args.hot_files + args.cold_files;
        let (root, place) = match (&args.dir, &args.slow) {
            (Some(path), _) => {
                fs::create_dir_all(path).map_err(|e| Problem::of(path.display(), e))?;
                (path.clone(), Place::User)
            }
            (None, Some(slow)) => {
                let bytes = u64::from(count) * args.size.0.next_multiple_of(4096);
                let (disk, mount) = slow.build(count.into(), bytes)?;
                let root = mount.path().to_owned();
                let _mount = Box::new(mount);
                (root, Place::Slow { _mount, disk })
            }
            (None, None) => {
                let made = files::scratch(None, u64::from(count) * args.size.0, FEWER)?;
                (made.path().to_owned(), Place::Made { _directory: made })
            }
        };
        let ground = Ground {
            // nginx takes another directory as its own.
            root: fs::canonicalize(&root).map_err(|e| Problem::of(root.display(), e))?,
            size: args.size.0,
            hot: args.hot_files,
            cold: args.cold_files,
            place,
        };
        ground.fill(stop)?;
        Ok(ground)
    }

    /// Makes the files that are missing.
    fn fill(&self, stop: &Stop) -> Result<(), Problem> {
        let speed = match &self.place {
            Place::Slow { disk, .. } => Some(disk.full_speed()),
            _ => None,
        };
        let mut progress = Progress::of_bytes(self.size * u64::from(self.hot + self.cold));
        let all = Kind::ALL.into_iter().flat_map(|kind| self.names(kind));
        for (name, made) in all.zip(0..) {
            if stop.asked() {
                return Err(Problem::Interrupted);
            }
            let path = self.path(name);
            match fs::metadata(&path) {
                Ok(there) if there.len() == self.size => {}
                Ok(there) => {
                    return Err(Problem::Usage(format!(
                        "{} has {} bytes: name another --dir, or --size {}",
                        path.display(),
                        there.len(),
                        there.len()
                    )));
                }
                Err(_) => fs::write(&path, name.bytes(self.size)).map_err(|e| {
                    // A file of another size would be in the way of the next run.
                    let _ = fs::remove_file(&path);
                    match files::is_full(&e) {
                        true => files::no_space(&self.root, None, FEWER),
                        false => Problem::of(path.display(), e),
                    }
                })?,
            }
            progress.at(self.size * made, "making files".into());
        }
        let root = files::open(&self.root)?;
        rustix::fs::syncfs(&root).map_err(|e| Problem::of("syncfs", e))?;
        drop(speed);
        Ok(())
    }

    /// All files of a kind.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = Name> + use<> {
        (0..self.count(kind)).map(move |number| Name { kind, number })
    }

    /// The number of files of a kind.
    pub fn count(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Hot => self.hot,
            Kind::Cold => self.cold,
        }
    }

    fn path(&self, name: Name) -> PathBuf {
        self.root.join(name.to_string())
    }

    /// Puts the page cache into the state for a turn. Returns a note if that failed.
    pub fn make_ready(&self) -> Result<Option<String>, Problem> {
        let mut stayed = 0;
        let cold: Vec<Name> = self.names(Kind::Cold).collect();
        for some in cold.chunks(OPEN) {
            let open: Result<Vec<File>, Problem> = some
                .iter()
                .map(|name| files::open(&self.path(*name)))
                .collect();
            let open = open?;
            cache::evict(&open)?;
            stayed += cache::resident(&open).unwrap_or(0);
        }
        memory::touch(self.size * u64::from(self.cold));
        for name in self.names(Kind::Hot) {
            cache::read_through(&files::open(&self.path(name))?, self.size)?;
        }
        if let Place::Slow { disk, .. } = &self.place {
            // The log would grow with each turn.
            disk.take_log();
        }
        // Some pages that nginx has sent by sendfile(2) stay for a while.
        let few = u64::from(self.cold / 100).max(16);
        Ok((stayed > self.size * few).then(|| {
            format!(
                "not cold: more than {few} of {} cold files stayed in the page cache before a turn (another \
                 program maps or reads them, or their filesystem is in memory)",
                self.cold
            )
        }))
    }
}
