//! Walk: a tree of directories, each scanned as [`scan`] does, many at the same time.
//!
//! Directories are opened as they are found, the last found first, and every worker that has nothing
//! to do for one that is open opens another. All of them together keep to one budget of descriptors,
//! one window of entries, and one share of the engine's workers.
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
//! A directory's own entry comes before anything that is in it. [`Order::Inode`] and [`Order::Name`]
//! hold within each directory. Nothing else is promised: entries of different directories come mixed,
//! batch by batch. The root itself has no entry.
//!
//! # What is not entered
//! Symbolic links, unless they are to be [followed](Options::follow_links); other filesystems, if
//! [so wished](Options::one_filesystem); and a directory that is one of its own ancestors (by a bind
//! mount, or a followed link): that one comes as an error of the kind
//! [`Cycle`](crate::ErrorKind::Cycle). Their entries come in any case. A file with several names comes
//! by each of them.
//!
//! # Errors
//! A directory that can't be opened or listed comes as an error with its path, and the walk goes on. One
//! that is gone before it could be opened is only counted ([`Stats::vanished`]).
//!
//! # Memory
//! The window bounds entries. A directory that waits to be opened is remembered by its path: a
//! directory with a million subdirectories is a million paths.

mod beneath;
mod config;
mod entry;
mod place;
mod tree;

use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use beneath::open_beneath;
pub use entry::{DirEntry, Found};
pub use place::Place;

use config::{Config, Filter};
use tree::Tree;

use crate::engine::Engine;
use crate::error::Result;
use crate::metadata::StatxMask;
use crate::scan::{self, Canceller, Directory, OpenDirectory, Order, StatOrder, Xattrs};
use crate::task_group::TaskGroup;

/// How a tree is to be walked.
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
    /// Names and kinds only, the whole tree, a window of 65,536 entries, at most 64 descriptors and
    /// a quarter of what the process may have.
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
        /// Takes what a network filesystem has cached, however old.
        dont_sync(yes: bool);
        /// Brings extended attributes.
        xattrs(which: Xattrs);
        /// In which order the entries of each directory come.
        order(order: Order);
        /// How many entries, and bytes, may be between being listed and being handed out.
        window(entries: usize, bytes: usize);
        /// Insists on the order in which metadata is asked for.
        stat_order(stat_order: StatOrder);
        /// Insists on how many workers at most help; never more than half of the engine's.
        workers(workers: usize);
        /// On this engine's workers, instead of the process's engine's.
        engine(engine: &Engine);
        /// Whether a blocking walk begins in the caller; see [`scan::Options::caller`].
        caller(yes: bool);
    }

    /// Enters no directory that lies on another filesystem than the root.
    #[must_use]
    pub fn one_filesystem(mut self, yes: bool) -> Options {
        self.config.one_filesystem = yes;
        self
    }

    /// Asks for the metadata of the files that symbolic links lead to, and enters directories through
    /// links.
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

    /// Enters only the directories that `filter` returns true for. It takes the path of the directory and
    /// its depth, which is 1 for a directory in the root. The entry of a directory comes in any case.
    ///
    /// The filter runs in the calling thread and in the engine's workers, in several at the same time. If
    /// it panics, the directory comes as an error with EIO.
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

    /// How many descriptors at most are open at the same time, at least 2. When the process has no
    /// more to give, it makes do with those that it has.
    #[must_use]
    pub fn descriptors(mut self, descriptors: usize) -> Options {
        self.config.descriptors = descriptors.max(2);
        self
    }

    /// Opens the root and begins; blocks.
    ///
    /// # Errors
    /// As open(2) says, with the path.
    pub fn blocking_open(&self, root: impl AsRef<Path>) -> Result<Walk> {
        Ok(self.start(Directory::blocking_open(root.as_ref())?))
    }

    /// Opens the root on the engine and begins.
    pub fn open(&self, root: impl AsRef<Path>) -> Open {
        Open {
            options: self.clone(),
            open: self.config.scan.open_directory(root.as_ref()),
        }
    }

    /// Begins on an open directory; paths are relative to it.
    ///
    /// # Errors
    /// ENOTDIR if it is none; what fstat(2), fstatfs(2) and lseek(2) say.
    pub fn on(&self, root: impl Into<OwnedFd>) -> Result<Walk> {
        Ok(self.start(Directory::rewound(root.into())?))
    }

    fn start(&self, root: Directory) -> Walk {
        let root = Arc::new(root);
        let tree = Tree::new(&root, self.config.clone());
        Walk {
            group: self.config.scan.group_for("walk", tree, &root),
            found: None,
        }
    }
}

/// A walk that is going on. Dropping it cancels it.
///
/// Blocking it is an iterator of entries; as a future see [`batch`](Walk::batch).
#[derive(Debug)]
pub struct Walk {
    group: Arc<TaskGroup<Tree>>,
    /// The batch that the iterator is in, and how far.
    found: Option<(Found, usize)>,
}

impl Walk {
    /// Walks a tree, names only; blocks.
    ///
    /// # Errors
    /// As open(2) says of the root.
    pub fn blocking_open(root: impl AsRef<Path>) -> Result<Walk> {
        Options::new().blocking_open(root)
    }

    /// Walks a tree, names only.
    pub fn open(root: impl AsRef<Path>) -> Open {
        Options::new().open(root)
    }

    /// The next entries of one directory; `None` at the end. Blocks.
    ///
    /// # Errors
    /// Why a directory is missing (more may come after it), or that it was cancelled.
    pub fn blocking_batch(&mut self) -> Option<Result<Found>> {
        self.group.next()
    }

    /// The next entries of one directory, as a future; `None` at the end.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// let mut walk = nowait::Walk::open("src").await?;
    /// let mut deepest = 0;
    /// while let Some(found) = walk.batch().await {
    ///     deepest = deepest.max(found?.place().depth());
    /// }
    /// assert!(deepest > 0);
    /// # Ok::<(), nowait::Error>(())
    /// # })?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn batch(&mut self) -> NextFound<'_> {
        NextFound { walk: self }
    }

    /// The next entries, as a stream's `poll_next` gives them.
    pub fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Found>>> {
        self.group.poll(cx)
    }

    /// What was done so far; nothing in a forked child.
    pub fn stats(&self) -> Stats {
        let stats = self.group.look(|tree, group| {
            let tally = tree.tally();
            Stats {
                directories: tally.directories,
                vanished: tally.vanished,
                scan: scan::Stats::new(tally.counts, group),
            }
        });
        stats.unwrap_or_default()
    }

    /// Ends it; see [`Scan::cancel`](crate::Scan::cancel).
    pub fn cancel(&self) {
        self.group.cancel();
    }

    /// Something to cancel it with from elsewhere.
    pub fn canceller(&self) -> Canceller {
        Canceller::new(&self.group)
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.group.cancel();
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            if let Some((found, at)) = &mut self.found {
                if let Some(entry) = found.get(*at) {
                    *at += 1;
                    return Some(Ok(entry));
                }
                self.found = None;
            }
            match self.group.next()? {
                Ok(found) => self.found = Some((found, 0)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// What a walk has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Directories that were opened.
    pub directories: u64,
    /// Directories that were gone before they could be opened.
    pub vanished: u64,
    /// The same as of a scan, of all directories together.
    pub scan: scan::Stats,
}

/// The future of [`Walk::open`] and [`Options::open`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Open {
    options: Options,
    open: OpenDirectory,
}

impl Future for Open {
    type Output = Result<Walk>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Walk>> {
        let opened = Pin::new(&mut self.open).poll(cx);
        opened.map(|root| Ok(self.options.start(root?)))
    }
}

/// The future of [`Walk::batch`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct NextFound<'a> {
    walk: &'a mut Walk,
}

impl Future for NextFound<'_> {
    type Output = Option<Result<Found>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.walk.poll_batch(cx)
    }
}
