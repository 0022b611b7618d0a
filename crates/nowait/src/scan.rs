//! Scan: the entries of one directory, with metadata and extended attributes, at the speed of the
//! device.
//!
//! ```text
//!  list (getdents64, in parallel) ─► sorted by inode ─► queried (statx, xattrs) ─► batches
//!  └────────────────────────── a limited number of them at once ───────────────────────────┘
//! ```
//!
//! If one thread lists a directory that is not cached and asks for the metadata of name after name,
//! it waits for the device each time. A [`Scan`] lists several parts of the directory in parallel
//! where the filesystem's directory positions can be split (ext4, xfs, btrfs). It sorts the names
//! by inode number, and asks for metadata from many of the engine's workers, so that the device's
//! queue is full and each block is read once. A small directory that is cached is scanned by the
//! calling thread alone, without a handoff.
//!
//! ```
//! use nowait::{StatxMask, scan};
//!
//! let scan = scan::Options::new().metadata(StatxMask::BASIC_STATS).blocking_open("src")?;
//! let mut bytes = 0;
//! for entry in scan {
//!     let entry = entry?;
//!     if let Some(Ok(stat)) = entry.metadata() {
//!         bytes += stat.len();
//!     }
//! }
//! assert!(bytes > 0);
//! # Ok::<(), nowait::Error>(())
//! ```
//!
//! # Concurrent changes
//! A name that is in the directory before the scan is opened and until it ends is returned exactly
//! once. A name that is created, removed or renamed meanwhile is returned once or not at all, as by
//! readdir(3). A renamed file may be returned under both names.
//!
//! # Errors
//! An entry whose metadata cannot be read carries its own error, and the scan continues. If a part
//! of the directory cannot be listed, the scan returns everything else, and an error among the
//! batches reports that the result is incomplete.
//!
//! # Stalled devices
//! [`Entries::cancel`] and [`Canceller::cancel`] return immediately, and so does a call that waits
//! for a batch. Workers that wait for the device continue to wait. There is one exception: a
//! blocking scan works in the calling thread for its first millisecond (three milliseconds while
//! everything is cached) and until its current system call returns. The futures never do.

mod cancel;
mod dir;
mod directory;
mod entries;
mod entry;
mod list;
mod metadata;
mod options;
mod order;
mod plan;
mod progress;
mod readahead;
mod stats;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

pub use cancel::Canceller;
pub use dir::Dir;
pub use entries::{Entries, Open};
pub use entry::{Batch, DirEntry, Xattrs as EntryXattrs};
#[cfg(any(fuzzing, nowait_internals))]
pub use list::{dirents::Dirents, simulated::exactly_once};
pub use metadata::Xattrs;
pub use options::Options;
pub use order::Order;
pub use readahead::{Readahead, readahead, readahead_from};
pub use stats::Stats;

pub(crate) use directory::{Directory, FLAGS};
pub(crate) use entries::Source;
pub(crate) use progress::{Allowed, Done, Piece, Progress};

use crate::error::Result;
use crate::task_group;

/// A scan in progress: the entries of one directory. Dropping it cancels the scan.
pub type Scan = Entries<Stats>;

impl Options {
    /// Opens the directory and begins the scan. Blocks.
    ///
    /// # Errors
    /// The errors of open(2), with the path.
    pub fn blocking_open(&self, path: impl AsRef<Path>) -> Result<Scan> {
        Ok(self.start(Directory::blocking_open(path.as_ref())?))
    }

    /// Opens the directory in a worker and begins the scan. Returns a future.
    pub fn open(&self, path: impl AsRef<Path>) -> Open<Stats> {
        let (options, path) = (self.clone(), path.as_ref().to_owned());
        self.open_in_worker(move || options.blocking_list(&path).map(|(_, scan)| scan))
    }

    /// Begins a scan of an open directory, from its first entry on. The scan moves the position of
    /// the open file, which duplicates of the descriptor share.
    ///
    /// # Errors
    /// ENOTDIR if the descriptor is not a directory; the errors of fstat(2), fstatfs(2) and
    /// lseek(2).
    pub fn from_fd(&self, fd: impl Into<OwnedFd>) -> Result<Scan> {
        Ok(self.start(Directory::from_start(fd.into(), None)?))
    }

    pub(crate) fn start(&self, directory: impl Into<Arc<Directory>>) -> Scan {
        Entries::new(self.group(directory.into()))
    }

    /// Opens a directory and lists it, or its first names if there are many. A small directory thus needs only this
    /// call. Blocks.
    pub(crate) fn blocking_list(&self, path: &Path) -> Result<(Arc<Directory>, Scan)> {
        let directory = Arc::new(Directory::blocking_open(path)?);
        let mut progress = self.progress(&directory, Arc::new(Dir::root(&directory)));
        progress.list_if_small();
        let group = self.group_for("scan", progress, &directory);
        Ok((directory, Entries::new(group)))
    }
}

impl Entries<Stats> {
    /// Opens a directory and lists its names. Blocks.
    ///
    /// # Errors
    /// The errors of open(2), with the path.
    pub fn blocking_open(path: impl AsRef<Path>) -> Result<Scan> {
        Options::new().blocking_open(path)
    }

    /// Opens a directory and lists its names. Returns a future: write `Scan::open(path).await?`. Without an
    /// executor, [`blocking_open`](Self::blocking_open) does the same.
    ///
    /// ```
    /// # use nowait::Scan;
    /// async fn names() -> nowait::Result<usize> {
    ///     let scan = Scan::open("/usr").await?;
    ///     Ok(scan.count())
    /// }
    /// assert!(pollster::block_on(names())? > 0);
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Open<Stats> {
        Options::new().open(path)
    }
}

impl Source for Progress {
    type Stats = Stats;

    fn stats(&self, work: task_group::Stats) -> Stats {
        self.stats().with(work)
    }
}
