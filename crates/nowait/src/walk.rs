//! Walk: a tree of directories, each scanned as by [`scan`], many at the same time.
//!
//! Directories are opened as they are found, those of the last batch first. A worker that finds no
//! work in the open directories opens another one. All directories together share one limit of
//! descriptors, one limit of entries, and one share of the engine's workers.
//!
//! ```
//! let mut lines = 0;
//! for found in nowait::Walk::blocking_open("src")? {
//!     let found = found?;
//!     if found.path().extension().is_some_and(|e| e == "rs") {
//!         lines += 1;
//!     }
//! }
//! assert!(lines > 20);
//! # Ok::<(), nowait::Error>(())
//! ```
//!
//! # Order
//! A directory's own entry is returned before the entries in it. [`Order::Inode`] and
//! [`Order::Name`] hold within each directory. Nothing else is guaranteed: batches of different
//! directories are interleaved. The root itself has no entry.
//!
//! # Directories that are not entered
//! - Symbolic links, unless [`follow_links`](Options::follow_links) is set.
//! - Directories on other filesystems, if [`one_filesystem`](Options::one_filesystem) is set.
//! - Directories for which [`filter_dirs`](Options::filter_dirs) returns false.
//! - Directories at the depth [`max_depth`](Options::max_depth).
//! - A directory that is one of its own ancestors (by a bind mount or a followed link). It is
//!   returned as an error of the kind [`Cycle`](crate::ErrorKind::Cycle).
//!
//! The entry of such a directory or link itself is returned. A file with several names is returned
//! once for each name.
//!
//! # Errors
//! A directory that cannot be opened or listed is returned as an error with its path, and the walk
//! continues. A directory that was removed before it could be opened is only counted
//! ([`Stats::vanished`]).
//!
//! # Memory
//! [`Options::max_buffered`] limits the entries in memory. A directory that waits to be opened is
//! kept as its name: a directory with a million subdirectories takes the memory of a million names.
//!
//! # Deep trees
//! Time, memory and system calls are proportional to the number of directories, however deep they
//! are. Directories are opened relative to their parents, of which up to 64 are kept open, and at
//! most a quarter of [`Options::descriptors`]. Paths may be longer than `PATH_MAX`.

mod beneath;
mod config;
mod opener;
mod stats;
mod tree;
mod waiting;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

pub use beneath::open_beneath;
pub use opener::{OpenDir, Opener};
pub use stats::Stats;

use config::{Config, Filter};
use tree::Tree;

use crate::engine::Engine;
use crate::error::Result;
use crate::metadata::StatxMask;
use crate::scan::{self, Directory, Entries, Open, Order, Source, Xattrs};
use crate::task_group;

/// Options for a walk.
///
/// ```
/// use nowait::walk;
/// use nowait::StatxMask;
/// let walk = walk::Options::new()
///     .metadata(StatxMask::BASIC_STATS)
///     .one_filesystem(true)
///     .blocking_open("src")?;
/// for found in walk {
///     let found = found?;
///     if let Some(Ok(metadata)) = found.metadata() {
///         println!("{} {}", metadata.len(), found.path().display());
///     }
/// }
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    config: Config,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

macro_rules! as_for_a_scan {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*);)*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $($arg: $type),*) -> Options {
            self.config.scan = self.config.scan.$name($($arg),*);
            self
        })*
    };
}

impl Options {
    /// Names and types only, the whole tree, at most 65,536 entries in memory, and at most 64
    /// descriptors or a quarter of the process's limit, whichever is less.
    pub fn new() -> Options {
        let quarter =
            crate::sys::limit::descriptors().map_or(64, |n| usize::try_from(n / 4).unwrap_or(64));
        Options {
            config: Config {
                scan: scan::Options::new(),
                one_filesystem: false,
                depth: usize::MAX,
                filter: None,
                descriptors: quarter.clamp(4, 64),
            },
        }
    }

    as_for_a_scan! {
        /// Asks for these fields of each entry; see [`scan::Options::metadata`].
        metadata(fields: StatxMask);
        /// Accepts the cached attributes of a network filesystem, however old they are.
        dont_sync(yes: bool);
        /// Reads extended attributes.
        xattrs(which: Xattrs);
        /// Sets the order of the entries of each directory.
        order(order: Order);
        /// Sets the limits for entries, and their bytes, that are listed and not yet returned.
        max_buffered(entries: usize, bytes: usize);
        /// Sets the maximum number of workers. It is never more than half of the engine's.
        workers(workers: usize);
        /// Uses this engine's workers instead of those of the process's engine.
        engine(engine: &Engine);
    }

    /// Enters no directory on a filesystem other than the root's.
    #[must_use]
    pub fn one_filesystem(mut self, yes: bool) -> Options {
        self.config.one_filesystem = yes;
        self
    }

    /// Follows symbolic links: returns the metadata of their targets, and enters the directories
    /// they lead to.
    #[must_use]
    pub fn follow_links(mut self, yes: bool) -> Options {
        self.config.scan = self.config.scan.follow(yes);
        self
    }

    /// Returns entries down to this depth: 1 is the entries of the root alone, and no directory is
    /// entered.
    #[must_use]
    pub fn max_depth(mut self, depth: usize) -> Options {
        self.config.depth = depth.saturating_sub(1);
        self
    }

    /// Enters only the directories that `filter` returns true for. It takes the path of the
    /// directory and its depth, which is 1 for a directory in the root. The entry of a directory is
    /// returned in any case.
    ///
    /// The filter runs in the calling thread and in the engine's workers, in several of them at the
    /// same time. If it panics, the directory is returned as an error with EIO.
    ///
    /// ```
    /// let walk = nowait::walk::Options::new()
    ///     .filter_dirs(|path, _| path.file_name().is_none_or(|name| name != "target"))
    ///     .blocking_open("src")?;
    /// assert!(walk.count() > 20);
    /// # Ok::<(), nowait::Error>(())
    /// ```
    #[must_use]
    pub fn filter_dirs(
        mut self,
        filter: impl Fn(&Path, usize) -> bool + Send + Sync + 'static,
    ) -> Options {
        self.config.filter = Some(Filter::new(filter));
        self
    }

    /// Sets the maximum number of open descriptors, at least 2. If the process has no more
    /// descriptors, the walk continues with those it has.
    #[must_use]
    pub fn descriptors(mut self, descriptors: usize) -> Options {
        self.config.descriptors = descriptors.max(2);
        self
    }

    /// Opens the root and begins the walk. Blocks.
    ///
    /// # Errors
    /// The errors of open(2), with the path.
    pub fn blocking_open(&self, root: impl AsRef<Path>) -> Result<Walk> {
        Ok(self.start(Directory::blocking_open(root.as_ref())?))
    }

    /// Opens the root in a worker and begins the walk. Returns a future.
    pub fn open(&self, root: impl AsRef<Path>) -> Open<Stats> {
        let (options, root) = (self.clone(), root.as_ref().to_owned());
        let open = move || options.blocking_open(&root);
        self.config.scan.open_in_worker(open)
    }

    /// Begins a walk of an open directory. Paths are relative to it.
    ///
    /// # Errors
    /// ENOTDIR if the descriptor is not a directory; the errors of fstat(2), fstatfs(2) and
    /// lseek(2).
    pub fn from_fd(&self, root: impl Into<OwnedFd>) -> Result<Walk> {
        Ok(self.start(Directory::from_start(root.into(), None)?))
    }

    /// Begins a walk of an open directory. The paths of entries and errors begin with `path`, which
    /// is not resolved.
    ///
    /// # Errors
    /// As for [`from_fd`](Options::from_fd).
    pub fn from_fd_at(&self, root: impl Into<OwnedFd>, path: impl AsRef<Path>) -> Result<Walk> {
        let path = Some(path.as_ref().into());
        Ok(self.start(Directory::from_start(root.into(), path)?))
    }

    fn start(&self, root: Directory) -> Walk {
        let root = Arc::new(root);
        let tree = Tree::new(&root, self.config.clone());
        Entries::new(self.config.scan.group_for("walk", tree, &root))
    }
}

/// A walk in progress: the entries of a tree. Dropping it cancels the walk.
pub type Walk = Entries<Stats>;

impl Entries<Stats> {
    /// Walks a tree and returns names only. Blocks.
    ///
    /// # Errors
    /// The errors of open(2) for the root.
    pub fn blocking_open(root: impl AsRef<Path>) -> Result<Walk> {
        Options::new().blocking_open(root)
    }

    /// Walks a tree and returns names only. Returns a future: write `Walk::open(root).await?`. Without an
    /// executor, [`blocking_open`](Self::blocking_open) does the same.
    pub fn open(root: impl AsRef<Path>) -> Open<Stats> {
        Options::new().open(root)
    }

    /// Sets the number of directories that the walk may open, including the root. There is no limit
    /// at first.
    ///
    /// When the walk has opened that many, its batches end with `None`, and
    /// [`Stats::waiting`] counts the directories that are left. With a higher limit the next batch is
    /// `Some` again.
    ///
    /// ```
    /// let mut walk = nowait::Walk::blocking_open("..")?;
    /// walk.set_max_directories(1);
    /// while let Some(batch) = walk.blocking_batch() {
    ///     assert_eq!(batch?.dir().depth(), 0);
    /// }
    /// assert!(walk.stats().waiting > 0);
    /// walk.set_max_directories(3);
    /// while let Some(batch) = walk.blocking_batch() {
    ///     println!("{}", batch?.dir().path().display());
    /// }
    /// assert_eq!(walk.stats().directories, 3);
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn set_max_directories(&self, directories: u64) {
        self.set_most(directories);
    }
}

impl Source for Tree {
    type Stats = Stats;

    fn stats(&self, work: task_group::Stats) -> Stats {
        let stats = self.stats();
        Stats {
            scan: stats.scan.with(work),
            ..stats
        }
    }

    fn set_max_directories(&mut self, most: u64) {
        self.set_max_directories(most);
    }
}
