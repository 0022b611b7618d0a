//! The entries of a scan or a walk in progress: a blocking iterator, its batches, and their
//! futures.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::cancel::{Cancel, Canceller};
use super::entry::{Batch, DirEntry};
use crate::engine::Engine;
use crate::error::Result;
use crate::task_group::{self, Job, TaskGroup};

/// The job of a scan or a walk.
pub(crate) trait Source: Job<Out = Batch> {
    type Stats: Default + 'static;

    fn stats(&self, work: task_group::Stats) -> Self::Stats;

    /// Sets the number of directories that may be opened. A scan has one.
    fn set_max_directories(&mut self, _most: u64) {}
}

/// The group of a scan or a walk, without the type of its job.
trait Results<S>: Cancel {
    fn next(&self) -> Option<Result<Batch>>;
    fn poll(&self, cx: &Context<'_>) -> Poll<Option<Result<Batch>>>;
    fn stats(&self) -> S;
    fn set_max_directories(&self, most: u64);
    fn abandon(&self);
}

impl<J: Source> Results<J::Stats> for TaskGroup<J> {
    fn next(&self) -> Option<Result<Batch>> {
        self.next()
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Option<Result<Batch>>> {
        self.poll(cx)
    }

    fn stats(&self) -> J::Stats {
        self.inspect(J::stats).unwrap_or_default()
    }

    fn set_max_directories(&self, most: u64) {
        self.update(|job| job.set_max_directories(most));
    }

    fn abandon(&self) {
        self.abandon();
    }
}

/// The entries of a [`Scan`](crate::Scan) or a [`Walk`](crate::Walk) in progress. Dropping it
/// cancels the scan or walk.
///
/// It is a blocking iterator of entries. For futures see [`batch`](Entries::batch). `S` is the type
/// of its [`stats`](Entries::stats).
pub struct Entries<S> {
    group: Arc<dyn Results<S>>,
    /// The current batch of the iterator, and the index of its next entry.
    current: Option<(Batch, usize)>,
}

impl<S> Entries<S> {
    pub(crate) fn new(group: Arc<TaskGroup<impl Source<Stats = S>>>) -> Entries<S> {
        let current = None;
        Entries { group, current }
    }

    /// The work done so far. All values are zero in a forked child.
    pub fn stats(&self) -> S {
        self.group.stats()
    }

    pub(crate) fn set_most(&self, directories: u64) {
        self.group.set_max_directories(directories);
    }

    /// Returns the next entries of one directory, or `None` at the end. Blocks.
    ///
    /// # Errors
    /// The reason why a directory, or a part of one, is missing (more batches may follow), or that
    /// the scan or walk was cancelled.
    pub fn blocking_batch(&mut self) -> Option<Result<Batch>> {
        self.group.next()
    }

    /// Returns the next entries of one directory as a future, or `None` at the end. The future can
    /// be dropped without losing entries. The thread that polls it does no work of the scan or
    /// walk.
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
    pub async fn batch(&mut self) -> Option<Result<Batch>> {
        poll_fn(|cx| self.poll_batch(cx)).await
    }

    /// Polls for the next entries, in the form of a stream's `poll_next`.
    ///
    /// ```
    /// # use futures_util::StreamExt;
    /// # pollster::block_on(async {
    /// let mut walk = nowait::Walk::open("src").await?;
    /// let mut batches = futures_util::stream::poll_fn(move |cx| walk.poll_batch(cx));
    /// while let Some(found) = batches.next().await {
    ///     assert!(found?.len() > 0);
    /// }
    /// # Ok::<(), nowait::Error>(())
    /// # })?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Batch>>> {
        self.group.poll(cx)
    }

    /// Ends the scan or walk. Calls that wait for a batch fail with
    /// [`Cancelled`](crate::ErrorKind::Cancelled), and no more entries are returned. Returns
    /// immediately; a worker that waits for a device continues to wait.
    pub fn cancel(&self) {
        self.group.cancel();
    }

    /// A handle that can cancel the scan or walk while another thread waits for its next batch.
    pub fn canceller(&self) -> Canceller {
        Canceller::new(self.group.clone())
    }
}

impl<S> Drop for Entries<S> {
    fn drop(&mut self) {
        self.group.abandon();
    }
}

impl<S> fmt::Debug for Entries<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entries")
    }
}

impl<S> Iterator for Entries<S> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            if let Some((batch, at)) = &mut self.current {
                if let Some(entry) = batch.get(*at) {
                    *at += 1;
                    return Some(Ok(entry));
                }
                self.current = None;
            }
            match self.group.next()? {
                Ok(batch) => self.current = Some((batch, 0)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The future that opens a directory, and begins a scan or a walk: `S` is the type of its
/// [`stats`](Entries::stats). A worker does both in one call, and the thread that polls makes no
/// system call on the directory.
#[must_use = "a future does nothing until it is polled"]
pub struct Open<S>(Pin<Box<dyn Future<Output = Result<Entries<S>>> + Send>>);

impl<S: 'static> Open<S> {
    /// Calls `open` in a worker.
    pub(crate) fn new(
        engine: Option<Engine>,
        open: impl FnOnce() -> Result<Entries<S>> + Send + 'static,
    ) -> Open<S> {
        Open(Box::pin(async move {
            let engine = engine.map_or_else(Engine::process, Ok)?;
            engine.spawn_blocking(open).await?
        }))
    }
}

impl<S> Future for Open<S> {
    type Output = Result<Entries<S>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Entries<S>>> {
        self.0.as_mut().poll(cx)
    }
}

impl<S> fmt::Debug for Open<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Open")
    }
}
