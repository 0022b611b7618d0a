//! Scan: one directory, its entries with metadata and extended attributes, at the speed of its device.
//!
//! ```text
//!  list (getdents64, in parallel) ─► gathered ─► sorted by inode ─► asked (statx, xattrs) ─► batches
//!  └─────────────────────────────── at most a window of them ──────────────────────────────┘
//! ```
//!
//! A directory that is not cached costs one wait after the other when it is listed by one thread and
//! asked about name by name. A [`Scan`] lists several parts of it at once where the filesystem's
//! directory positions can be cut (ext4, xfs, btrfs), sorts what it has listed by inode number, and
//! asks from many of the engine's workers, so that the device's queue is full and its blocks are read
//! once. A small directory that is cached is scanned by the caller alone, without any handoff.
//!
//! ```
//! use nowait::scan::{self, StatxMask};
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
//! # What comes, under change
//! A name that is in the directory from before the scan is opened until it is over comes exactly once.
//! One that is created, removed or renamed meanwhile comes once or not at all, as for readdir(3); a
//! renamed file may come under both names.
//!
//! # Errors
//! An entry whose metadata can't be had carries its own error, and the scan goes on. When a part of
//! the directory can't be listed, the scan brings everything else, and an error among the batches says
//! that it is not whole.
//!
//! # Stalled devices
//! [`Scan::cancel`] and [`Canceller::cancel`] return at once, and so does whoever waits for a batch:
//! workers stay with the device. One exception: for its first millisecond (three while everything is
//! cached), and until the system call that it is in comes back, a blocking scan works in the caller.
//! [`Options::caller`] turns that off.

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
#[cfg(fuzzing)]
pub use list::fuzzing::exactly_once;
pub use metadata::Xattrs;
pub use options::Options;
pub use order::{Order, StatOrder};
pub use plan::Plan;
pub use readahead::{Limits, Readahead, readahead, readahead_of};
pub use stats::Stats;

pub(crate) use directory::{Directory, FLAGS, OpenDirectory};
pub(crate) use progress::{Counts, Done, Leave, Piece, Progress};

use crate::error::Result;
use crate::task_group::TaskGroup;

/// A scan that is going on. Dropping it cancels it.
///
/// Blocking it is an iterator of entries; as a future see [`batch`](Scan::batch).
#[derive(Debug)]
pub struct Scan {
    group: Arc<TaskGroup<Progress>>,
    plan: Plan,
    /// The batch that the iterator is in, and how far.
    batch: Option<(Batch, usize)>,
}

impl Options {
    /// Opens the directory and begins; blocks.
    ///
    /// # Errors
    /// As open(2) says, with the path.
    pub fn blocking_open(&self, path: impl AsRef<Path>) -> Result<Scan> {
        Ok(self.start(Directory::blocking_open(path.as_ref())?))
    }

    /// Opens the directory on the engine and begins.
    pub fn open(&self, path: impl AsRef<Path>) -> Open {
        Open {
            options: self.clone(),
            open: self.open_directory(path.as_ref()),
        }
    }

    /// Begins on an open directory, from its first entry on. Its own position moves, also that of
    /// other descriptors of the same open file.
    ///
    /// # Errors
    /// ENOTDIR if it is none; what fstat(2), fstatfs(2) and lseek(2) say.
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
    /// Opens a directory and lists it, names only; blocks.
    ///
    /// # Errors
    /// As open(2) says, with the path.
    pub fn blocking_open(path: impl AsRef<Path>) -> Result<Scan> {
        Options::new().blocking_open(path)
    }

    /// Opens a directory and lists it, names only.
    pub fn open(path: impl AsRef<Path>) -> Open {
        Options::new().open(path)
    }

    /// How it is done.
    ///
    /// ```
    /// let scan = nowait::Scan::blocking_open("src")?;
    /// println!("{:?}", scan.plan());
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// What was done so far; nothing in a forked child.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.group)
    }

    /// The next entries; `None` at the end. Blocks.
    ///
    /// # Errors
    /// Why a part of the directory is missing (more may come after it), or that it was cancelled.
    pub fn blocking_batch(&mut self) -> Option<Result<Batch>> {
        self.group.next()
    }

    /// The next entries, as a future; `None` at the end. It can be dropped and asked for again.
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

    /// The next entries, as a stream's `poll_next` gives them.
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

    /// Calls `each` with every batch until it breaks off or all have come; blocks.
    ///
    /// # Errors
    /// The first reason why a part of the directory is missing, after all that is there has come; or
    /// that the scan was cancelled.
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

    /// Ends it: whoever waits for a batch is told [`Cancelled`](crate::ErrorKind::Cancelled), and
    /// nothing comes any more. Returns at once; a worker that a device holds stays with it.
    pub fn cancel(&self) {
        self.group.cancel();
    }

    /// Something to cancel it with from elsewhere, while a thread waits for its next batch.
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
