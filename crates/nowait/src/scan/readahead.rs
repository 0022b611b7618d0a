//! Readahead of a directory: loads its inodes into the kernel's caches in the background, in the
//! order in which they lie on the device, before a program asks for them one by one.
//!
//! It is a scan whose results are dropped. It corresponds to `dirreadahead()`, as proposed on
//! linux-fsdevel by Abhijith Das in 2014.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use super::directory::Directory;
use super::entries::Source;
use super::list;
use super::metadata::Xattrs;
use super::options::Options;
use super::progress::Progress;
use super::stats::Stats;
use crate::engine::Engine;
use crate::error::Result;
use crate::metadata::StatxMask;
use crate::task_group::TaskGroup;

/// Limits of a readahead.
#[derive(Clone, Debug)]
pub struct Limits {
    options: Options,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::new()
    }
}

impl Limits {
    /// Every inode of the directory, no extended attributes, on the process's engine.
    pub fn new() -> Limits {
        let mut options = Options::new()
            .metadata(StatxMask::BASIC_STATS)
            .dont_sync(true);
        options.config().drop = true;
        Limits { options }
    }

    /// Sets the maximum number of inodes. The first ones in the directory's order are read.
    #[must_use]
    pub fn entries(mut self, entries: u64) -> Limits {
        self.options = self.options.at_most(entries);
        self
    }

    /// Also reads the names of extended attributes, which `ls -l` asks for.
    #[must_use]
    pub fn xattrs(mut self, yes: bool) -> Limits {
        let which = if yes { Xattrs::Names } else { Xattrs::None };
        self.options = self.options.xattrs(which);
        self
    }

    /// Sets the maximum number of workers.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Limits {
        self.options = self.options.workers(workers);
        self
    }

    /// Uses this engine's workers.
    #[must_use]
    pub fn engine(mut self, engine: &Engine) -> Limits {
        self.options = self.options.engine(engine);
        self
    }
}

/// A readahead in progress. Dropping the handle does not end it.
#[derive(Clone, Debug)]
pub struct Readahead(Arc<TaskGroup<Progress>>);

/// Begins to load the inodes of a directory into the kernel's caches. The calling thread only opens
/// the directory.
///
/// ```
/// use nowait::scan::{Limits, readahead};
/// let ahead = readahead("src", &Limits::new().entries(10_000))?;
/// // ... list the directory and ask about its entries, in any way ...
/// ahead.blocking_wait();
/// assert!(ahead.progress().done > 0);
/// # Ok::<(), nowait::Error>(())
/// ```
///
/// # Errors
/// The errors of open(2), with the path; EAGAIN if there is no worker and none can be started.
pub fn readahead(directory: impl AsRef<Path>, limits: &Limits) -> Result<Readahead> {
    let directory = Directory::blocking_open(directory.as_ref())?;
    let group = limits.options.group(directory.into());
    group.start()?;
    Ok(Readahead(group))
}

/// As [`readahead`], of an open directory, from a position of it on. Returns the position after the
/// last entry, at which the next call continues. The calling thread lists the entries, up to the
/// limit of [`entries`](Limits::entries), and workers load their inodes. It moves the position of
/// the open file, which duplicates of the descriptor share.
///
/// Position 0 is the beginning. The others are those of getdents64(2), `d_off`. At the end of the
/// directory no entry is listed: [`Stats::listed`] of the progress is 0.
///
/// # Errors
/// ENOTDIR if the descriptor is not a directory; the errors of lseek(2) and getdents64(2);
/// otherwise as [`readahead`].
///
/// ```
/// use nowait::scan::{Limits, readahead_from};
/// let (limits, mut position) = (Limits::new().entries(8), 0);
/// loop {
///     let directory = std::fs::File::open("src")?;
///     let (ahead, next) = readahead_from(directory, position, &limits)?;
///     if ahead.progress().listed == 0 {
///         break;
///     }
///     // ... ask about these 8 entries ...
///     position = next;
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn readahead_from(
    directory: impl Into<OwnedFd>,
    position: u64,
    limits: &Limits,
) -> Result<(Readahead, u64)> {
    let directory = Arc::new(Directory::at(directory.into(), position)?);
    let (rows, next) = list::first(&directory, position, limits.options.most())?;
    let mut progress = limits.options.progress(&directory);
    progress.set_listing(rows);
    let group = limits.options.group_for("readahead", progress, &directory);
    group.start()?;
    Ok((Readahead(group), next))
}

impl Readahead {
    /// The work done so far. `done` counts the inodes that are in the cache.
    pub fn progress(&self) -> Stats {
        self.0.inspect(Progress::stats).unwrap_or_default()
    }

    /// Returns true if the readahead has ended or was cancelled.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Waits until the readahead has ended.
    pub fn blocking_wait(&self) {
        // No batches are returned. The first result is the end.
        let _ = self.0.next();
    }

    /// Ends the readahead. Returns immediately; a worker that waits for a device continues to wait.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}
