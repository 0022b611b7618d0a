//! Readahead of a directory: its inodes are brought into the kernel's caches in the background, in the
//! order in which they lie on the device, before somebody asks for them one by one.
//!
//! What `dirreadahead()` was to be (seed of the idea: Abhijith Das, linux-fsdevel, 2014): a scan whose
//! results are dropped.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use super::directory::Directory;
use super::metadata::Xattrs;
use super::options::Options;
use super::progress::Progress;
use super::stats::Stats;
use crate::engine::Engine;
use crate::error::Result;
use crate::metadata::StatxMask;
use crate::task_group::TaskGroup;

/// How much to read ahead.
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
        options.wish().drop = true;
        Limits { options }
    }

    /// At most so many inodes: the first that the directory lists.
    #[must_use]
    pub fn entries(mut self, entries: u64) -> Limits {
        self.options = self.options.at_most(entries);
        self
    }

    /// Extended attributes as well (their names: what `ls -l` asks for).
    #[must_use]
    pub fn xattrs(mut self, yes: bool) -> Limits {
        let which = if yes { Xattrs::Names } else { Xattrs::None };
        self.options = self.options.xattrs(which);
        self
    }

    /// At most so many workers.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Limits {
        self.options = self.options.workers(workers);
        self
    }

    /// On this engine's workers.
    #[must_use]
    pub fn engine(mut self, engine: &Engine) -> Limits {
        self.options = self.options.engine(engine);
        self
    }
}

/// A readahead that is going on. Dropping the handle lets it go on to its end.
#[derive(Clone, Debug)]
pub struct Readahead(Arc<TaskGroup<Progress>>);

/// Begins to bring the inodes of a directory into the kernel's caches. Only the opening is done in the
/// caller.
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
/// As open(2) says, with the path; EAGAIN if there is no worker and none can be started.
pub fn readahead(directory: impl AsRef<Path>, limits: &Limits) -> Result<Readahead> {
    begin(limits, Directory::blocking_open(directory.as_ref())?)
}

/// The same for an open directory. Its position moves, also that of other descriptors of the same open
/// file: give it one of its own (openat(2) of `.`).
///
/// # Errors
/// ENOTDIR if it is none; else as [`readahead`].
pub fn readahead_of(directory: impl Into<OwnedFd>, limits: &Limits) -> Result<Readahead> {
    begin(limits, Directory::rewound(directory.into())?)
}

fn begin(limits: &Limits, directory: Directory) -> Result<Readahead> {
    let (group, _) = limits.options.group(directory.into());
    group.begin()?;
    Ok(Readahead(group))
}

impl Readahead {
    /// How far it is: `done` counts inodes that are in the cache by now.
    pub fn progress(&self) -> Stats {
        Stats::of(&self.0)
    }

    /// Whether it has come to its end, or was cancelled.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Waits until it is over.
    pub fn blocking_wait(&self) {
        // Nothing is handed out: the first answer is that it is over.
        let _ = self.0.next();
    }

    /// Ends it. Returns at once; a worker that a device holds stays with it.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}
