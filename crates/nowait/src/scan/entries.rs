//! The entries of a scan or a walk in progress: a blocking iterator, its batches, and their
//! futures.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::cancel::{Cancel, Canceller};
use super::directory::OpenDirectory;
use crate::error::Result;
use crate::task_group::{self, Job, TaskGroup};

/// A batch of entries: [`scan::Batch`](crate::scan::Batch) or [`walk::Found`](crate::walk::Found).
pub trait Batched: Send + 'static {
    /// An entry of the batch.
    type Entry;
    /// The counters of the scan or walk.
    type Stats: Default;

    /// The entry at index `at`, if there is one.
    fn get(&self, at: usize) -> Option<Self::Entry>;
}

/// The job of a scan or a walk.
pub(crate) trait Source: Job<Out: Batched> {
    fn stats(&self, work: task_group::Counts) -> <Self::Out as Batched>::Stats;
}

/// The group of a scan or a walk, without the type of its job.
trait Results<B: Batched>: Cancel {
    fn next(&self) -> Option<Result<B>>;
    fn poll(&self, cx: &Context<'_>) -> Poll<Option<Result<B>>>;
    fn stats(&self) -> B::Stats;
}

impl<J: Source> Results<J::Out> for TaskGroup<J> {
    fn next(&self) -> Option<Result<J::Out>> {
        self.next()
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Option<Result<J::Out>>> {
        self.poll(cx)
    }

    fn stats(&self) -> <J::Out as Batched>::Stats {
        self.inspect(J::stats).unwrap_or_default()
    }
}

/// The entries of a [`Scan`](crate::Scan) or a [`Walk`](crate::Walk) in progress. Dropping it
/// cancels the scan or walk.
///
/// It is a blocking iterator of entries. For futures see [`batch`](Entries::batch).
pub struct Entries<B: Batched> {
    group: Arc<dyn Results<B>>,
    /// The current batch of the iterator, and the index of its next entry.
    current: Option<(B, usize)>,
}

impl<B: Batched> Entries<B> {
    pub(crate) fn new(group: Arc<TaskGroup<impl Source<Out = B>>>) -> Entries<B> {
        let current = None;
        Entries { group, current }
    }

    /// The work done so far. All values are zero in a forked child.
    pub fn stats(&self) -> B::Stats {
        self.group.stats()
    }

    /// Returns the next entries of one directory, or `None` at the end. Blocks.
    ///
    /// # Errors
    /// The reason why a directory, or a part of one, is missing (more batches may follow), or that
    /// the scan or walk was cancelled.
    pub fn blocking_batch(&mut self) -> Option<Result<B>> {
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
    pub fn batch(&mut self) -> NextBatch<'_, B> {
        NextBatch { entries: self }
    }

    /// Polls for the next entries, in the form of a stream's `poll_next`.
    ///
    /// ```
    /// # use futures_util::StreamExt;
    /// # pollster::block_on(async {
    /// let mut walk = nowait::Walk::open("src").await?;
    /// let mut batches = futures_util::stream::poll_fn(move |cx| walk.poll_batch(cx));
    /// while let Some(found) = batches.next().await {
    ///     assert!(found?.batch().len() > 0);
    /// }
    /// # Ok::<(), nowait::Error>(())
    /// # })?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<B>>> {
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

impl<B: Batched> Drop for Entries<B> {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl<B: Batched> fmt::Debug for Entries<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entries")
    }
}

impl<B: Batched> Iterator for Entries<B> {
    type Item = Result<B::Entry>;

    fn next(&mut self) -> Option<Result<B::Entry>> {
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

/// The future of [`Entries::batch`].
#[must_use = "a future does nothing until it is polled"]
#[derive(Debug)]
pub struct NextBatch<'a, B: Batched> {
    entries: &'a mut Entries<B>,
}

impl<B: Batched> Future for NextBatch<'_, B> {
    type Output = Option<Result<B>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.entries.poll_batch(cx)
    }
}

/// The future that opens a directory, and begins a scan or a walk with these options.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Open<O> {
    pub(crate) options: O,
    pub(crate) directory: OpenDirectory,
}
