//! Files of a visit looked at by several threads, and taken in the visit's order.
//!
//! ```text
//!  visit ─► batch ─► work queue ─► threads: look ─► the batch's own channel ─► take
//!             └─ in order of making: at most AHEAD of them ──────────────────────┘
//! ```
//! The caller's thread lists directories and takes what comes back. Threads start when it has looked
//! at files for a while: a few are sooner done without. A batch is as large as can be looked at in
//! about that while.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use super::{Found, Paths};
use crate::remark::Remarks;

/// How long the caller looks at files alone, and a thread at a batch: handing it over costs a
/// hundredth of that.
const WHILE: Duration = Duration::from_millis(1);

/// A batch has no more files, for the sake of memory and of whoever waits for the first of them.
const MOST: usize = 64;

/// How many batches may be under way for each thread.
const AHEAD: usize = 4;

/// Files on their way to a thread, and where the answers go.
struct Batch<T> {
    files: Vec<Found>,
    answers: Sender<Answers<T>>,
}

/// What was said of the files of a batch.
struct Answers<T> {
    said: Vec<(Found, T)>,
    took: Duration,
}

impl Paths {
    /// Calls `look` for every file, in several threads, and `take` with what it said, in the
    /// caller's thread and in the order of [`visit`](Paths::visit), until that returns an error.
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
                // Moved in here, so that it goes first and the threads come to their end.
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

/// The threads of one visit, and the batches that they have.
struct Crew<'scope, 'env, T, L> {
    scope: &'scope Scope<'scope, 'env>,
    look: &'scope L,
    queue: &'scope Mutex<Receiver<Batch<T>>>,
    work: Sender<Batch<T>>,
    threads: usize,
    pending: VecDeque<Receiver<Answers<T>>>,
    /// How many files make a batch.
    size: usize,
}

impl<'scope, T, L> Crew<'scope, '_, T, L>
where
    T: Send + 'scope,
    L: Fn(&Found) -> T + Sync,
{
    /// Brings the threads.
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
        // Can't fail: the queue lives longer than this.
        let _ = self.work.send(Batch { files, answers });
    }

    /// Takes the oldest batches until no more than `most` are under way.
    fn take_beyond<E>(
        &mut self,
        most: usize,
        take: &mut impl FnMut(Found, T) -> Result<(), E>,
    ) -> Result<(), E> {
        while self.pending.len() > most {
            let batch = self.pending.pop_front();
            let Some(answers) = batch.and_then(|batch| batch.recv().ok()) else {
                // A thread has panicked, and so will this one at the end of its scope.
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

/// The life of a thread: batch after batch, until there are no more to come.
fn work<T>(look: &impl Fn(&Found) -> T, queue: &Mutex<Receiver<Batch<T>>>) {
    loop {
        // Nobody panics while holding the lock.
        let next = queue.lock().map(|queue| queue.recv());
        let Ok(Ok(batch)) = next else { return };
        let begin = Instant::now();
        let said = batch.files.into_iter().map(|found| {
            let said = look(&found);
            (found, said)
        });
        let said = said.collect();
        let took = begin.elapsed();
        // A caller that has had enough takes no more of them.
        let _ = batch.answers.send(Answers { said, took });
    }
}
