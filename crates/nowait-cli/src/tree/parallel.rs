//! Files of a visit looked at by several threads, and taken in the visit's order.
//!
//! ```text
//!  visit ─► batch ─► work queue ─► threads: look ─► the batch's own channel ─► take
//!             └─ in order of making: at most AHEAD of them ──────────────────────┘
//! ```
//! The caller's thread lists directories and takes what comes back. Threads start when a first
//! batch is full: a few files are looked at by the caller, which is sooner done.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope};

use super::{Found, Paths};
use crate::remark::Remarks;

/// How many files go to a thread at once: enough that handing them over costs little.
const BATCH: usize = 64;

/// How many batches may be under way for each thread.
const AHEAD: usize = 4;

/// Files on their way to a thread, and where the answers go.
struct Batch<T> {
    files: Vec<Found>,
    answers: Sender<Vec<(Found, T)>>,
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
            };
            let mut batch = Vec::with_capacity(BATCH);
            self.visit(remarks, |found| {
                batch.push(found);
                if batch.len() < BATCH {
                    return Ok(());
                }
                crew.give(std::mem::replace(&mut batch, Vec::with_capacity(BATCH)));
                crew.take_beyond(crew.threads * AHEAD, &mut take)
            })?;
            crew.take_beyond(0, &mut take)?;
            batch.into_iter().try_for_each(|found| {
                let said = look(&found);
                take(found, said)
            })
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
    pending: VecDeque<Receiver<Vec<(Found, T)>>>,
}

impl<'scope, T, L> Crew<'scope, '_, T, L>
where
    T: Send + 'scope,
    L: Fn(&Found) -> T + Sync,
{
    /// Hands a batch to the threads; the first one brings them.
    fn give(&mut self, files: Vec<Found>) {
        if self.threads == 0 {
            self.threads = thread::available_parallelism()
                .map_or(2, NonZero::get)
                .max(2);
            for _ in 0..self.threads {
                let (look, queue) = (self.look, self.queue);
                self.scope.spawn(move || work(look, queue));
            }
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
            let answers = self.pending.pop_front().and_then(|batch| batch.recv().ok());
            for (found, said) in answers.into_iter().flatten() {
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
        let answers = batch.files.into_iter().map(|found| {
            let said = look(&found);
            (found, said)
        });
        // A caller that has had enough takes no more of them.
        let _ = batch.answers.send(answers.collect());
    }
}
