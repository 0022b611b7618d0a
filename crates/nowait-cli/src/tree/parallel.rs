//! Processes the files of a visit on several threads, and returns the results in the visit's order.
//!
//! ```text
//!  visit ─► batch ─► work queue ─► threads: look ─► the batch's own channel ─► take
//!             └─ in order of making: at most AHEAD of them ──────────────────────┘
//! ```
//! The calling thread lists directories and takes the results. Threads are started after the calling
//! thread has processed files for [`WHILE`], because a few files take less time without threads. The
//! size of batches is adapted so that a batch takes about [`WHILE`].

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use super::{Found, Paths};
use crate::remark::Remarks;

/// The time that the calling thread processes files alone, and the intended time for a batch. Handing a
/// batch to a thread costs a hundredth of it.
const WHILE: Duration = Duration::from_millis(1);

/// The maximum number of files in a batch. It bounds memory and the delay of the batch's first result.
const MOST: usize = 64;

/// The maximum number of pending batches for each thread.
const AHEAD: usize = 4;

/// Files for a thread to process, and the channel for the results.
struct Batch<T> {
    files: Vec<Found>,
    answers: Sender<Answers<T>>,
}

/// The results for the files of a batch.
struct Answers<T> {
    said: Vec<(Found, T)>,
    took: Duration,
}

impl Paths {
    /// Calls `look` for every file, on several threads, and `take` with each result, on the calling thread
    /// and in the order of [`visit`](Paths::visit), until `take` returns an error.
    pub fn look<T: Send, E>(
        &self,
        remarks: &Remarks,
        look: impl Fn(&Found) -> T + Sync,
        mut take: impl FnMut(Found, T) -> Result<(), E>,
    ) -> Result<(), E> {
        let (work, queue) = mpsc::channel();
        let queue = Mutex::new(queue);
        thread::scope(|scope| {
            let mut crew = Crew {
                scope,
                look: &look,
                queue: &queue,
                // Moved into this scope, so that it is dropped first and the threads end.
                work,
                threads: 0,
                pending: VecDeque::new(),
                size: 1,
            };
            let begin = Instant::now();
            let mut batch = Vec::new();
            self.visit(remarks, |found| {
                if crew.threads == 0 {
                    if begin.elapsed() < WHILE {
                        let said = look(&found);
                        return take(found, said);
                    }
                    crew.start();
                }
                batch.push(found);
                if batch.len() < crew.size {
                    return Ok(());
                }
                crew.give(std::mem::take(&mut batch));
                crew.take_beyond(crew.threads * AHEAD, &mut take)
            })?;
            crew.give(batch);
            crew.take_beyond(0, &mut take)
        })
    }
}

/// The threads of one visit, and their pending batches.
struct Crew<'scope, 'env, T, L> {
    scope: &'scope Scope<'scope, 'env>,
    look: &'scope L,
    queue: &'scope Mutex<Receiver<Batch<T>>>,
    work: Sender<Batch<T>>,
    threads: usize,
    pending: VecDeque<Receiver<Answers<T>>>,
    /// The number of files in the next batch.
    size: usize,
}

impl<'scope, T, L> Crew<'scope, '_, T, L>
where
    T: Send + 'scope,
    L: Fn(&Found) -> T + Sync,
{
    /// Starts the threads.
    fn start(&mut self) {
        self.threads = thread::available_parallelism()
            .map_or(2, NonZero::get)
            .max(2);
        for _ in 0..self.threads {
            let (look, queue) = (self.look, self.queue);
            self.scope.spawn(move || work(look, queue));
        }
    }

    /// Hands a batch to the threads.
    fn give(&mut self, files: Vec<Found>) {
        if files.is_empty() {
            return;
        }
        let (answers, pending) = mpsc::channel();
        self.pending.push_back(pending);
        // Cannot fail: the receiver outlives the crew.
        let _ = self.work.send(Batch { files, answers });
    }

    /// Takes the oldest batches until at most `most` are pending.
    fn take_beyond<E>(
        &mut self,
        most: usize,
        take: &mut impl FnMut(Found, T) -> Result<(), E>,
    ) -> Result<(), E> {
        while self.pending.len() > most {
            let batch = self.pending.pop_front();
            let Some(answers) = batch.and_then(|batch| batch.recv().ok()) else {
                // A thread has panicked. This thread panics, too, at the end of the scope.
                return Ok(());
            };
            let count = answers.said.len();
            if answers.took < WHILE / 2 {
                self.size = self.size.max(count * 2).min(MOST);
            } else if answers.took > WHILE * 2 {
                self.size = self.size.min(count / 2).max(1);
            }
            for (found, said) in answers.said {
                take(found, said)?;
            }
        }
        Ok(())
    }
}

/// Processes batches until the sender is dropped.
fn work<T>(look: &impl Fn(&Found) -> T, queue: &Mutex<Receiver<Batch<T>>>) {
    loop {
        // No thread panics while it holds the lock.
        let next = queue.lock().map(|queue| queue.recv());
        let Ok(Ok(batch)) = next else { return };
        let begin = Instant::now();
        let said = batch.files.into_iter().map(|found| {
            let said = look(&found);
            (found, said)
        });
        let said = said.collect();
        let took = begin.elapsed();
        // Fails if the calling thread has stopped early. Its results are not needed then.
        let _ = batch.answers.send(Answers { said, took });
    }
}
