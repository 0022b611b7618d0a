//! Many small files: their contents, as a stream.
//!
//! If one thread opens, reads and closes file after file, it waits for the device several times for
//! each file that is not cached. [`read_files()`] opens and reads many files at the same time, in
//! batches, on the engine's workers. Files in the page cache are read without waiting for the
//! device, also while others wait for it: as long as the limits permit, on filesystems whose
//! files open without waiting (ext4, xfs, f2fs; btrfs and tmpfs since Linux 6.8) and that support
//! `RWF_NOWAIT`. On other filesystems all files are read in the same way.
//!
//! ```
//! let mut lines = 0;
//! let paths = nowait::Walk::blocking_open("src")?
//!     .filter_map(|entry| entry.ok().map(|entry| entry.path().to_path_buf()))
//!     .filter(|path| path.extension().is_some_and(|e| e == "rs"));
//! for file in nowait::read_files(paths) {
//!     lines += file?.bytes().split(|byte| *byte == b'\n').count();
//! }
//! assert!(lines > 1000);
//! # Ok::<(), nowait::Error>(())
//! ```
//!
//! # Order
//! Files are read in the order of the paths. They are returned in the order in which they are
//! complete, or in the order of the paths with [`Options::in_order`]. Each file has its path. Files
//! are not sorted by inode number: the number of an uncached file is known only after its inode was
//! read from the device. Asking for all inodes first took longer than the sorted reads saved, on
//! ext4 on the disk of a virtual machine.
//!
//! # Paths
//! The paths are taken from the iterator when a file is asked for, in the calling
//! thread, as far as the limits permit. A relative path is resolved when its file is opened.
//! Symbolic links are followed. A path that is given twice is read twice.
//!
//! # Errors
//! A file that cannot be read is returned as an error with its path, and the others follow:
//! - the errors of open(2), statx(2) and read(2);
//! - EISDIR for a directory;
//! - [`NotRegular`](crate::ErrorKind::NotRegular) for a FIFO, a socket, or a device. It is not
//!   opened: that would wake the other end of a FIFO, or have an effect on the device. This also
//!   holds if another process replaces a file by a FIFO at the same time;
//! - EMFILE, ENFILE or ENOMEM if there is no descriptor or no memory even while no other file is
//!   read;
//! - EAGAIN for a regular file of procfs or the like whose read would wait without end.
//!
//! A file whose size changes is read until its end, as by [`std::fs::read`]. So are the files of
//! procfs and sysfs, whose size says nothing.
//!
//! To find the type of a file before it is opened, its path is opened with O_PATH first, and then
//! the same file by way of /proc/thread-self/fd, as by [`reopen`](crate::reopen()). That costs an
//! open and a close more than [`std::fs::read`]: one or two microseconds. Where /proc is not
//! mounted, the path is opened a second time, with O_NONBLOCK. Another process can then replace the
//! file between the two calls, and a FIFO in its place is opened and closed.
//!
//! # Memory
//! [`Options::max_buffered`] limits the number of files, and the bytes of their contents, from the
//! time when a file is taken from the paths until it is returned. Memory is reserved before a file
//! is read. A file that needs more than three quarters of the limit is read alone.
//!
//! # Stalled devices
//! [`ReadFiles::cancel`], [`Canceller::cancel`] and dropping the stream return immediately. Workers
//! that wait for the device continue to wait, and then close their files. There is one exception: a
//! blocking iterator works in the calling thread for its first millisecond (three milliseconds
//! while everything is cached) and until its current system call returns. The futures never do.

mod contents;
mod into;
mod options;
mod queue;
mod stats;

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};

pub use contents::FileContents;
pub use into::{blocking_read_into, try_read_into_cached};
pub use options::Options;
pub use stats::Stats;

use queue::Queue;

use crate::error::Result;
use crate::scan::Canceller;
use crate::task_group::TaskGroup;

/// The number of paths that are taken at once.
const CHUNK: usize = 64;

/// Reads the files at these paths, with the default options. See the
/// [module](mod@crate::read_files) for the order, the errors and the limits, and [`Options`] for
/// others.
///
/// ```
/// for file in nowait::read_files(["Cargo.toml", "/no such file"]) {
///     match file {
///         Ok(file) => println!("{}: {} bytes", file.path().display(), file.bytes().len()),
///         Err(error) => println!("{error}"),
///     }
/// }
/// ```
pub fn read_files<I>(paths: I) -> ReadFiles<I::IntoIter>
where
    I: IntoIterator,
    I::Item: AsRef<Path>,
{
    Options::new().read(paths)
}

/// Files that are being read. Dropping it cancels the reads.
///
/// It is a blocking iterator of files. For futures see [`next_file`](ReadFiles::next_file).
#[derive(Debug)]
pub struct ReadFiles<I> {
    group: Arc<TaskGroup<Queue>>,
    /// `None` after the last path.
    paths: Option<I>,
    /// Files that were taken from the paths and not returned.
    outstanding: usize,
    max_outstanding: usize,
}

impl Options {
    /// Reads the files at these paths. Nothing is done before the first file is asked for.
    pub fn read<I>(&self, paths: I) -> ReadFiles<I::IntoIter>
    where
        I: IntoIterator,
        I::Item: AsRef<Path>,
    {
        ReadFiles {
            group: self.group(),
            paths: Some(paths.into_iter()),
            outstanding: 0,
            max_outstanding: self.files(),
        }
    }
}

impl<I> ReadFiles<I> {
    /// The work done so far. All values are zero in a forked child.
    pub fn stats(&self) -> Stats {
        let stats = self.group.inspect(|queue, work| Stats {
            by_caller: work.by_caller,
            by_workers: work.by_workers,
            waited: work.waited,
            workers: work.workers,
            ..queue.stats()
        });
        stats.unwrap_or_default()
    }

    /// Ends the reads. Calls that wait for a file fail with
    /// [`Cancelled`](crate::ErrorKind::Cancelled), and no more files are returned. Returns
    /// immediately; a worker that waits for a device continues to wait.
    pub fn cancel(&self) {
        self.group.cancel();
    }

    /// A handle that can cancel the reads while another thread waits for the next file.
    pub fn canceller(&self) -> Canceller {
        Canceller::new(self.group.clone())
    }

    fn returned<T>(&mut self, answer: Option<T>) -> Option<T> {
        self.outstanding = self.outstanding.saturating_sub(1);
        answer
    }
}

impl<I> ReadFiles<I>
where
    I: Iterator,
    I::Item: AsRef<Path>,
{
    /// Returns the next file as a future, or `None` at the end. The future can be dropped without
    /// losing files.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// let mut files = nowait::read_files(["Cargo.toml", "src/lib.rs"]);
    /// let mut bytes = 0;
    /// while let Some(file) = files.next_file().await {
    ///     bytes += file?.bytes().len();
    /// }
    /// assert!(bytes > 1000);
    /// # Ok::<(), nowait::Error>(())
    /// # })?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub async fn next_file(&mut self) -> Option<Result<FileContents>> {
        poll_fn(|cx| self.poll_next_file(cx)).await
    }

    /// Polls for the next file, in the form of a stream's `poll_next`.
    ///
    /// ```
    /// # use futures_util::StreamExt;
    /// # pollster::block_on(async {
    /// let mut files = nowait::read_files(["Cargo.toml", "src/lib.rs"]);
    /// let mut files = futures_util::stream::poll_fn(move |cx| files.poll_next_file(cx));
    /// while let Some(file) = files.next().await {
    ///     assert!(file?.bytes().len() > 100);
    /// }
    /// # Ok::<(), nowait::Error>(())
    /// # })?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn poll_next_file(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<FileContents>>> {
        loop {
            let took = self.take_paths();
            match self.group.poll(cx) {
                // Workers have begun with the first paths. More are taken while none is ready.
                Poll::Pending if took => {}
                polled => return polled.map(|answer| self.returned(answer)),
            }
        }
    }

    /// Takes paths from the iterator, as far as the limit permits. Returns true if it took any.
    fn take_paths(&mut self) -> bool {
        let room = self.max_outstanding.saturating_sub(self.outstanding);
        if room < CHUNK.min(self.max_outstanding) && self.outstanding > 0 {
            return false;
        }
        let Some(paths) = &mut self.paths else {
            return false;
        };
        let paths = paths.by_ref().take(room.min(CHUNK));
        let taken: Vec<PathBuf> = paths.map(|path| path.as_ref().to_path_buf()).collect();
        if taken.len() < room.min(CHUNK) {
            self.paths = None;
        }
        if taken.is_empty() {
            return false;
        }
        self.outstanding += taken.len();
        self.group.update(|queue| queue.add(taken));
        true
    }
}

impl<I> Drop for ReadFiles<I> {
    fn drop(&mut self) {
        self.group.abandon();
    }
}

impl<I> Iterator for ReadFiles<I>
where
    I: Iterator,
    I::Item: AsRef<Path>,
{
    type Item = Result<FileContents>;

    fn next(&mut self) -> Option<Result<FileContents>> {
        while self.take_paths() && self.group.is_left_to_workers() {
            if let Some(answer) = self.group.try_next() {
                return self.returned(answer);
            }
        }
        let answer = self.group.next();
        self.returned(answer)
    }
}
