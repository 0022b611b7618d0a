//! Processes the files of a visit on several threads, and returns the results in the visit's order.
//!
//! ```text
//!  visit ─► batch ─► work queue ─► threads: examine ─► the batch's own channel ─► take
//!             └─ in the order of creation, at most MAX_PENDING ───────────────────────┘
//! ```
//! The calling thread lists directories and takes the results. It processes the first files itself,
//! because a few files take less time without threads. It starts threads after [`BATCH_TIME`]. The
//! size of batches is adapted so that a batch takes about [`BATCH_TIME`].

use std::collections::VecDeque;
use std::fs::File;
use std::num::NonZero;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustix::fs::Stat;

use crate::file_ref::{FileRef, OpenError};

/// The time that the calling thread processes files alone, and the intended time for a batch.
/// Handing a batch to a thread costs a hundredth of it.
const BATCH_TIME: Duration = Duration::from_millis(1);

/// The maximum number of files in a batch. It bounds memory and the delay of the batch's first
/// result.
const MAX_FILES: usize = 64;

/// The maximum number of pending batches for each thread.
const MAX_PENDING: usize = 4;

/// The number of further attempts to open a file that alone lacks descriptors, and the time between
/// two.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// Files for a thread to process, and the channel for the results.
struct Batch<T> {
    files: Vec<FileRef>,
    results: Sender<Results<T>>,
}

/// The results for the files of a batch.
struct Results<T> {
    results: Vec<(FileRef, T)>,
    took: Duration,
}

/// Opens every file of a visit by `open` and calls `examine`, on several threads. `open` is
/// [`FileRef::look`] if `examine` only looks at pages, otherwise [`FileRef::open`]. Calls `take` with each
/// result, on the calling thread and in the order of the visit, until `take` returns an error.
/// `visit` calls its argument with each file, and ends when that returns an error.
pub fn examine<T: Send, E>(
    visit: impl FnOnce(&mut dyn FnMut(FileRef) -> Result<(), E>) -> Result<(), E>,
    open: Open,
    examine: impl Fn(File, Stat) -> Result<T, OpenError> + Sync,
    mut take: impl FnMut(FileRef, Result<T, OpenError>) -> Result<(), E>,
) -> Result<(), E> {
    let (work, queue) = mpsc::channel();
    let queue = Mutex::new(queue);
    let opener = Opener {
        open,
        opened: RwLock::new(()),
    };
    let examine = |found: &FileRef| opener.examine(found, &examine);
    thread::scope(|scope| {
        let mut pool = Pool {
            scope,
            examine: &examine,
            queue: &queue,
            // Moved into this scope, so that it is dropped first and the threads end.
            work,
            threads: 0,
            pending: VecDeque::new(),
            size: 1,
        };
        let begin = Instant::now();
        let mut batch = Vec::new();
        visit(&mut |found| {
            let is_alone = pool.threads == 0 && (begin.elapsed() < BATCH_TIME || !pool.start());
            if is_alone {
                let results = examine(&found);
                return take(found, results);
            }
            batch.push(found);
            if batch.len() < pool.size {
                return Ok(());
            }
            pool.submit(std::mem::take(&mut batch));
            pool.take_until(pool.threads * MAX_PENDING, &mut take)
        })?;
        pool.submit(batch);
        pool.take_until(0, &mut take)
    })
}

/// The way to open a file.
type Open = fn(&FileRef) -> Result<(File, Stat), OpenError>;

/// Opens the files of one visit.
struct Opener {
    open: Open,
    /// Read-locked while a file is open.
    opened: RwLock<()>,
}

impl Opener {
    /// Opens a file and examines it. If it cannot be opened for lack of descriptors or memory,
    /// waits until the other threads have closed their files, and tries again.
    fn examine<T>(
        &self,
        found: &FileRef,
        examine: &impl Fn(File, Stat) -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        // A panic of another thread cannot leave anything inconsistent.
        let others = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        match (self.open)(found) {
            Err(why) if why.is_shortage() => {}
            opened => return opened.and_then(|(file, stat)| examine(file, stat)),
        }
        drop(others);
        let _alone = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        // The walk opens directories meanwhile, and closes them.
        let mut opened = (self.open)(found);
        for _ in 0..TRIES {
            match opened {
                Err(why) if why.is_shortage() => thread::sleep(PAUSE),
                _ => break,
            }
            opened = (self.open)(found);
        }
        let (file, stat) = opened?;
        examine(file, stat)
    }
}

/// The threads of one visit, and their pending batches.
struct Pool<'scope, 'env, T, L> {
    scope: &'scope Scope<'scope, 'env>,
    examine: &'scope L,
    queue: &'scope Mutex<Receiver<Batch<T>>>,
    work: Sender<Batch<T>>,
    threads: usize,
    pending: VecDeque<Receiver<Results<T>>>,
    /// The number of files in the next batch.
    size: usize,
}

impl<'scope, T, L> Pool<'scope, '_, T, L>
where
    T: Send + 'scope,
    L: Fn(&FileRef) -> T + Sync,
{
    /// Starts the threads, fewer if the process may not have as many. Returns true if there are
    /// some.
    fn start(&mut self) -> bool {
        let most = thread::available_parallelism().map_or(2, NonZero::get);
        for _ in 0..most.max(2) {
            let (examine, queue) = (self.examine, self.queue);
            let thread = thread::Builder::new();
            let started = thread.spawn_scoped(self.scope, move || work(examine, queue));
            self.threads += usize::from(started.is_ok());
        }
        self.threads > 0
    }

    /// Hands a batch to the threads.
    fn submit(&mut self, files: Vec<FileRef>) {
        if files.is_empty() {
            return;
        }
        let (results, pending) = mpsc::channel();
        self.pending.push_back(pending);
        // Cannot fail: the receiver outlives the pool.
        let _ = self.work.send(Batch { files, results });
    }

    /// Takes the oldest batches until at most `limit` are pending.
    fn take_until<E>(
        &mut self,
        limit: usize,
        take: &mut impl FnMut(FileRef, T) -> Result<(), E>,
    ) -> Result<(), E> {
        while self.pending.len() > limit {
            let batch = self.pending.pop_front();
            let Some(results) = batch.and_then(|batch| batch.recv().ok()) else {
                // A thread has panicked. This thread panics, too, at the end of the scope.
                return Ok(());
            };
            let count = results.results.len();
            if results.took < BATCH_TIME / 2 {
                self.size = self.size.max(count * 2).min(MAX_FILES);
            } else if results.took > BATCH_TIME * 2 {
                self.size = self.size.min(count / 2).max(1);
            }
            for (found, results) in results.results {
                take(found, results)?;
            }
        }
        Ok(())
    }
}

/// Processes batches until the sender is dropped.
fn work<T>(examine: &impl Fn(&FileRef) -> T, queue: &Mutex<Receiver<Batch<T>>>) {
    loop {
        // No thread panics while it holds the lock.
        let next = queue.lock().map(|queue| queue.recv());
        let Ok(Ok(batch)) = next else { return };
        let begin = Instant::now();
        let results = batch.files.into_iter().map(|found| {
            let results = examine(&found);
            (found, results)
        });
        let results = results.collect();
        let took = begin.elapsed();
        // Fails if the calling thread has stopped early. Its results are not needed then.
        let _ = batch.results.send(Results { results, took });
    }
}
