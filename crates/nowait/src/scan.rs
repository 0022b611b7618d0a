//! Scan: the entries of one directory, with metadata and extended attributes, at the speed of the device.
//!
//! ```text
//!  list (getdents64, in parallel) ─► gathered ─► sorted by inode ─► asked (statx, xattrs) ─► batches
//!  └─────────────────────────────── at most a window of them ──────────────────────────────┘
//! ```
//!
//! If one thread lists a directory that is not cached and asks for the metadata of name after name, it
//! waits for the device each time. A [`Scan`] lists several parts of the directory in parallel where the
//! filesystem's directory positions can be split (ext4, xfs, btrfs). It sorts the names by inode number,
//! and asks for metadata from many of the engine's workers, so that the device's queue is full and each
//! block is read once. A small directory that is cached is scanned by the calling thread alone, without a
//! handoff.
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
//! A name that is in the directory before the scan is opened and until it ends is returned exactly once. A
//! name that is created, removed or renamed meanwhile is returned once or not at all, as by readdir(3). A
//! renamed file may be returned under both names.
//!
//! # Errors
//! An entry whose metadata cannot be read carries its own error, and the scan continues. If a part of the
//! directory cannot be listed, the scan returns everything else, and an error among the batches reports
//! that the result is incomplete.
//!
//! # Stalled devices
//! [`Scan::cancel`] and [`Canceller::cancel`] return immediately, and so does a call that waits for a
//! batch. Workers that wait for the device continue to wait. There is one exception: a blocking scan works
//! in the calling thread for its first millisecond (three milliseconds while everything is cached) and
//! until its current system call returns. [`Options::caller`] turns that off.

mod cancel;
mod directory;
mod entry;
mod list;
mod metadata;
mod options;
mod order;
mod plan;
mod progress;
mod readahead;
mod stats;

use std::future::Future;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use cancel::Canceller;
pub use entry::{Batch, DirEntry, Xattrs as EntryXattrs};
#[cfg(any(fuzzing, nowait_internals))]
pub use list::{dirents::Dirents, fuzzing::exactly_once};
pub use metadata::Xattrs;
pub use options::Options;
pub use order::{Order, StatOrder};
pub use plan::Plan;
pub use readahead::{Limits, Readahead, readahead, readahead_from, readahead_of};
pub use stats::Stats;

pub(crate) use directory::{Directory, FLAGS, OpenDirectory};
pub(crate) use progress::{Counts, Done, Leave, Piece, Progress};

use crate::error::Result;
use crate::task_group::TaskGroup;

/// A scan in progress. Dropping it cancels it.
///
/// It is a blocking iterator of entries. For futures see [`batch`](Scan::batch).
#[derive(Debug)]
pub struct Scan {
    group: Arc<TaskGroup<Progress>>,
    plan: Plan,
    /// The current batch of the iterator, and the index of its next entry.
    batch: Option<(Batch, usize)>,
}

impl Options {
    /// Opens the directory and begins the scan. Blocks.
    ///
    /// # Errors
    /// The errors of open(2), with the path.
    pub fn blocking_open(&self, path: impl AsRef<Path>) -> Result<Scan> {
        Ok(self.start(Directory::blocking_open(path.as_ref())?))
    }

    /// Opens the directory on the engine and begins the scan.
    pub fn open(&self, path: impl AsRef<Path>) -> Open {
        Open {
            options: self.clone(),
            open: self.open_directory(path.as_ref()),
        }
    }

    /// Begins a scan of an open directory, from its first entry on. The scan moves the position of the open
    /// file, which duplicates of the descriptor share.
    ///
    /// # Errors
    /// ENOTDIR if the descriptor is not a directory; the errors of fstat(2), fstatfs(2) and lseek(2).
    pub fn on(&self, fd: impl Into<OwnedFd>) -> Result<Scan> {
        Ok(self.start(Directory::rewound(fd.into())?))
    }

    pub(crate) fn start(&self, directory: impl Into<Arc<Directory>>) -> Scan {
        let (group, plan) = self.group(directory.into());
        let batch = None;
        Scan { group, plan, batch }
    }
}

impl Scan {
    /// Opens a directory and lists its names. Blocks.
    ///
    /// # Errors
    /// The errors of open(2), with the path.
    pub fn blocking_open(path: impl AsRef<Path>) -> Result<Scan> {
        Options::new().blocking_open(path)
    }

    /// Opens a directory and lists its names.
    pub fn open(path: impl AsRef<Path>) -> Open {
        Options::new().open(path)
    }

    /// The plan of this scan.
    ///
    /// ```
    /// let scan = nowait::Scan::blocking_open("src")?;
    /// println!("{:?}", scan.plan());
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// The work done so far. All values are zero in a forked child.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.group)
    }

    /// Returns the next entries, or `None` at the end. Blocks.
    ///
    /// # Errors
    /// The reason why a part of the directory is missing (more batches may follow), or that the scan was
    /// cancelled.
    pub fn blocking_batch(&mut self) -> Option<Result<Batch>> {
        self.group.next()
    }

    /// Returns the next entries as a future, or `None` at the end. The future can be dropped without losing
    /// entries.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// let mut scan = nowait::Scan::open("src").await?;
    /// let mut entries = 0;
    /// while let Some(batch) = scan.batch().await {
    ///     entries += batch?.len();
    /// }
    /// assert!(entries > 10);
    /// # Ok::<(), nowait::Error>(())
    /// # })?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn batch(&mut self) -> NextBatch<'_> {
        NextBatch { scan: self }
    }

    /// Polls for the next entries, in the form of a stream's `poll_next`.
    ///
    /// ```
    /// # use futures_util::StreamExt;
    /// # pollster::block_on(async {
    /// let mut scan = nowait::Scan::open("src").await?;
    /// let mut batches = futures_util::stream::poll_fn(move |cx| scan.poll_batch(cx));
    /// while let Some(batch) = batches.next().await {
    ///     assert!(batch?.len() > 0);
    /// }
    /// # Ok::<(), nowait::Error>(())
    /// # })?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Batch>>> {
        self.group.poll(cx)
    }

    /// Calls `each` with every batch, until it breaks or the scan ends. Blocks.
    ///
    /// # Errors
    /// The first reason why a part of the directory is missing, after all other entries have been returned;
    /// or that the scan was cancelled.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// let mut names = 0;
    /// nowait::Scan::blocking_open("src")?.blocking_each(|batch| {
    ///     names += batch.len();
    ///     ControlFlow::Continue(())
    /// })?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn blocking_each(mut self, mut each: impl FnMut(Batch) -> ControlFlow<()>) -> Result<()> {
        let mut whole = Ok(());
        while let Some(batch) = self.blocking_batch() {
            match batch {
                Ok(batch) => {
                    if each(batch).is_break() {
                        break;
                    }
                }
                Err(error) => whole = whole.and(Err(error)),
            }
        }
        whole
    }

    /// Ends the scan. Calls that wait for a batch fail with [`Cancelled`](crate::ErrorKind::Cancelled), and
    /// no more entries are returned. Returns immediately; a worker that waits for a device continues to
    /// wait.
    pub fn cancel(&self) {
        self.group.cancel();
    }

    /// A handle that can cancel the scan while another thread waits for its next batch.
    pub fn canceller(&self) -> Canceller {
        Canceller::new(&self.group)
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.group.cancel();
    }
}

impl Iterator for Scan {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            if let Some((batch, at)) = &mut self.batch {
                if let Some(entry) = batch.get(*at) {
                    *at += 1;
                    return Some(Ok(entry));
                }
                self.batch = None;
            }
            match self.group.next()? {
                Ok(batch) => self.batch = Some((batch, 0)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The future of [`Scan::open`] and [`Options::open`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Open {
    options: Options,
    open: OpenDirectory,
}

impl Future for Open {
    type Output = Result<Scan>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Scan>> {
        let opened = Pin::new(&mut self.open).poll(cx);
        opened.map(|directory| Ok(self.options.start(directory?)))
    }
}

/// The future of [`Scan::batch`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct NextBatch<'a> {
    scan: &'a mut Scan,
}

impl Future for NextBatch<'_> {
    type Output = Option<Result<Batch>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.scan.poll_batch(cx)
    }
}
