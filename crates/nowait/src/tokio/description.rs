//! An open file description (open(2)) as a file's clones share it: the order of the calls at its
//! position.
//!
//! The kernel keeps the position of a regular file, and locks it during each call that uses it, also
//! while that call waits for the device. A caller that must not wait therefore leaves the position
//! alone while such a call is under way. Invariant: the caller uses the position only while no call of
//! the file's clones is queued or running, and only with calls that don't wait; workers make all others,
//! one at a time, in the order in which they were asked for.
//!
//! Who else holds the description can't be seen: a child process, a duplicate of the descriptor. A try
//! that has met such a holder's lock is noticed by the time it took. From then on all calls go to
//! workers; for good, unless the first of them finds the lock free.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use super::answer::Answer;
use super::error::as_io;
use super::transfer::{Ended, Transfer};
use crate::engine::{Engine, OpState};
use crate::handle::Handle;
use crate::op::{Call, Op};
use crate::sync::lock;

/// One for all clones of a file.
#[derive(Debug)]
pub(super) struct Description {
    handle: Handle,
    /// Callers share it during a try; a worker has it alone during a call.
    position: RwLock<()>,
    /// How many calls are queued or running. Changed under the lock of `queued` only.
    asked: AtomicUsize,
    /// The calls behind the one that runs.
    queued: Mutex<VecDeque<Queued>>,
    pace: AtomicU8,
}

#[derive(Debug)]
struct Queued {
    engine: Engine,
    call: Op,
    in_flight: Arc<OpState>,
}

/// Tries were quick so far.
const QUICK: u8 = 0;
/// A try took long; a worker is to find out if that was the position's lock.
const SUSPECTED: u8 = 1;
/// Somebody else holds the position's lock for long.
const SLOW: u8 = 2;

/// A try that takes longer has waited for something: the position's lock, a processor, or a device
/// that was slow to accept a readahead.
const LONG: Duration = Duration::from_millis(1);

impl Description {
    pub(super) fn new(handle: Handle) -> Description {
        Description {
            handle,
            position: RwLock::new(()),
            asked: AtomicUsize::new(0),
            queued: Mutex::default(),
            pace: AtomicU8::new(QUICK),
        }
    }

    /// Makes a call that does not wait for a device, if nobody is known to hold the position's lock.
    pub(super) fn at_once<T>(&self, engine: &Engine, call: impl FnOnce() -> T) -> Option<T> {
        // In a forked child no worker could make it.
        let quick =
            self.pace.load(Ordering::Relaxed) == QUICK || engine.check_process("try").is_err();
        if self.asked.load(Ordering::Acquire) > 0 || !quick {
            return None;
        }
        let _shared = self.position.try_read().ok()?;
        let begun = Instant::now();
        let made = call();
        if begun.elapsed() > LONG {
            self.pace.store(SUSPECTED, Ordering::Relaxed);
        }
        Some(made)
    }

    /// Has a worker make a call, after all that were asked for before. There must be a place for it in
    /// the engine.
    pub(super) fn ask(
        self: &Arc<Description>,
        engine: &Engine,
        transfer: Transfer,
        waker: &Waker,
    ) -> Asked {
        let in_flight = Arc::new(OpState::new(waker));
        let (tell, answer) = Answer::new();
        // Of other kinds of files the kernel locks no position: a read that waits must not keep the
        // write that it waits for.
        let turn = self.handle.is_regular().then(|| Turn(self.clone()));
        let asked = Asked {
            in_flight: in_flight.clone(),
            answer,
            unmade: transfer.unmade(),
        };
        let handle = self.handle.clone();
        let ordered = turn.is_some();
        let call = Call::new(move || {
            tell.tell(match &turn {
                Some(Turn(description)) => description.make(transfer),
                None => transfer.make(&handle),
            });
        });
        let call = Op::from(call.transferring(&self.handle));
        if ordered {
            let mut queued = lock(&self.queued);
            if self.asked.fetch_add(1, Ordering::AcqRel) > 0 {
                queued.push_back(Queued {
                    engine: engine.clone(),
                    call,
                    in_flight,
                });
                return asked;
            }
        }
        engine.launch_for(call, in_flight);
        asked
    }

    fn make(&self, transfer: Transfer) -> Ended {
        let _alone = self.position.write().unwrap_or_else(|e| e.into_inner());
        if self.pace.load(Ordering::Relaxed) == SUSPECTED {
            let begun = Instant::now();
            // Takes the lock and does nothing else.
            let _ = rustix::fs::tell(&self.handle);
            let found = if begun.elapsed() > LONG { SLOW } else { QUICK };
            self.pace.store(found, Ordering::Relaxed);
        }
        transfer.make(&self.handle)
    }
}

/// The right to be the one call that runs. Dropped, also without having been made, it lets the next
/// one run.
struct Turn(Arc<Description>);

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut queued = lock(&self.0.queued);
            self.0.asked.fetch_sub(1, Ordering::AcqRel);
            queued.pop_front()
        };
        if let Some(Queued {
            engine,
            call,
            in_flight,
        }) = next
        {
            engine.launch_for(call, in_flight);
        }
    }
}

/// A call that was asked for.
#[derive(Debug)]
pub(super) struct Asked {
    in_flight: Arc<OpState>,
    answer: Answer<Ended>,
    unmade: fn(std::io::Error) -> Ended,
}

impl Asked {
    /// Waits until it has ended.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<Ended> {
        let done = ready!(self.in_flight.poll(cx));
        let made = done.result.map_err(as_io).and_then(|_| self.answer.take());
        Poll::Ready(made.unwrap_or_else(self.unmade))
    }
}
