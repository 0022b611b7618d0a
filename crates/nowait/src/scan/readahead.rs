//! Readahead of a directory: loads its inodes into the kernel's caches in the background, in the
//! order in which they lie on the device, before a program asks for them one by one.
//!
//! It is a scan whose results are dropped. It corresponds to `dirreadahead()`, as proposed on
//! linux-fsdevel by Abhijith Das in 2014.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use super::dir::Dir;
use super::directory::Directory;
use super::entries::Source;
use super::list;
use super::options::Options;
use super::progress::Progress;
use super::stats::Stats;
use crate::error::Result;
use crate::task_group::TaskGroup;

/// A readahead in progress. Dropping the handle does not end it.
#[derive(Clone, Debug)]
pub struct Readahead(Arc<TaskGroup<Progress>>);

/// Begins to load the inodes of a directory into the kernel's caches. The calling thread only opens
/// the directory. With [`Options::xattrs`], the extended attributes are loaded too: `ls -l` asks
/// for their names. The options [`order`](Options::order) and [`dont_sync`](Options::dont_sync)
/// have no effect.
///
/// ```
/// use nowait::scan::{Options, readahead};
/// let ahead = readahead("src", &Options::new().max_entries(10_000))?;
/// // ... list the directory and ask about its entries, in any way ...
/// ahead.blocking_wait();
/// assert!(ahead.stats().done > 0);
/// # Ok::<(), nowait::Error>(())
/// ```
///
/// # Errors
/// The errors of open(2), with the path; EAGAIN if there is no worker and none can be started.
pub fn readahead(directory: impl AsRef<Path>, options: &Options) -> Result<Readahead> {
    let directory = Directory::blocking_open(directory.as_ref())?;
    let group = options.dropping().group(directory.into());
    group.start()?;
    Ok(Readahead(group))
}

/// As [`readahead`], of an open directory, from a position of it on. Returns the position after the
/// last entry, at which the next call continues. The calling thread lists the entries, up to the
/// limit of [`max_entries`](Options::max_entries), and workers load their inodes. It moves the
/// position of the open file, which duplicates of the descriptor share.
///
/// Position 0 is the beginning. The others are those of getdents64(2), `d_off`. At the end of the
/// directory no entry is listed: [`Stats::listed`] is 0.
///
/// # Errors
/// ENOTDIR if the descriptor is not a directory; the errors of lseek(2) and getdents64(2);
/// otherwise as [`readahead`].
///
/// ```
/// use nowait::scan::{Options, readahead_from};
/// let (options, mut position) = (Options::new().max_entries(8), 0);
/// loop {
///     let directory = std::fs::File::open("src")?;
///     let (ahead, next) = readahead_from(directory, position, &options)?;
///     if ahead.stats().listed == 0 {
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
    options: &Options,
) -> Result<(Readahead, u64)> {
    let directory = Arc::new(Directory::at(directory.into(), None, position)?);
    let options = options.dropping();
    let (rows, next) = list::first(&directory, position, options.get_max_entries())?;
    let dir = Arc::new(Dir::root(&directory));
    let mut progress = options.progress(&directory, dir);
    progress.set_listing(rows);
    let group = options.group_for("readahead", progress, &directory);
    group.start()?;
    Ok((Readahead(group), next))
}

impl Readahead {
    /// The work done so far. `done` counts the inodes that are in the cache.
    pub fn stats(&self) -> Stats {
        self.0.inspect(Source::stats).unwrap_or_default()
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
