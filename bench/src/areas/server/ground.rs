//! The files, and their state in the page cache before each turn.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;

use super::content::{Kind, Name};
use crate::harness::directory::Directory;
use crate::harness::slow::Slow;
use crate::harness::{cache, files, memory};

/// How the state is made, for the report.
pub const HOW: &str = "before each turn the hot files are read through; POSIX_FADV_DONTNEED on the cold ones until none is \
     cached, then as much memory as they need is used and freed. Inodes and names are cached";

/// Files that are open at the same time while they are evicted: fewer than the usual limit of 1024.
const OPEN: usize = 500;

/// The files. Dropping it removes those that were made, unless the user has named their directory.
pub struct Ground {
    pub root: PathBuf,
    /// The bytes of each file.
    pub size: u64,
    hot: u32,
    cold: u32,
    directory: Directory,
}

const FEWER: &str = "choose fewer --cold-files or a smaller --size, or go to a directory elsewhere";

impl Ground {
    /// Finds or makes these numbers of hot and cold files, of `size` bytes each.
    pub fn prepare(
        named: Option<&Path>,
        size: u64,
        (hot, cold): (u32, u32),
        slow: Option<&Slow>,
        stop: &Stop,
    ) -> Result<Ground, Problem> {
        let count = u64::from(hot + cold);
        let directory = match named {
            Some(path) => {
                fs::create_dir_all(path).map_err(|e| Problem::of(path.display(), e))?;
                Directory::of_user(path.to_owned(), FEWER)
            }
            None => {
                let bytes = count * size.next_multiple_of(4096);
                Directory::make(slow, count, bytes, FEWER)?
            }
        };
        let root = directory.path();
        let ground = Ground {
            // nginx takes another directory as its own.
            root: fs::canonicalize(root).map_err(|e| Problem::of(root.display(), e))?,
            size,
            hot,
            cold,
            directory,
        };
        ground.fill(stop)?;
        Ok(ground)
    }

    /// Makes the files that are missing.
    fn fill(&self, stop: &Stop) -> Result<(), Problem> {
        let speed = self.directory.full_speed();
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
                    self.directory.failed(&path, e)
                })?,
            }
            progress.at(self.size * made, "making files".into());
        }
        cache::sync(&self.root)?;
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
        // The log would grow with each turn.
        self.directory.take_log();
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
