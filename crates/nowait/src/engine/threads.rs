//! Workers: one bounded pool of threads that carry out operations by their blocking form, and take
//! turns at tasks.
//!
//! A task is work of many turns that is no single operation: a directory scan. A worker takes one
//! turn at it, a batch of it, and puts it back at the end of the queue: whatever else waits is
//! served between two turns.
//!
//! Threads are started when there is work and no idle one, up to the limit, and end after a while
//! without work. No file may hold more than half of them, and no device more than three quarters:
//! a file on a stalled disk must not keep the others waiting. What is over such a share is parked
//! until one of its own is done.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::Core;
use super::parcel::{Parcel, When, lock};
use crate::completion::{ServedBy, Ticket};
use crate::error::{Error, ErrorKind, Result};
use crate::op::Step;
use crate::retry;
use crate::stats::Count;
use crate::sys::Errno;
use crate::sys::thread::spawn_without_signals;

/// Work that workers take turns at.
pub(crate) trait Task: Send + Sync {
    /// The descriptor it works on and the device that is on, whose shares of the pool it counts
    /// against.
    fn subject(&self) -> (i32, u64);

    /// Does a bounded piece of it. Says whether this worker's next turn is wanted.
    fn turn(&self) -> bool;
}

/// What a worker can be given.
enum Work {
    Parcel(Parcel),
    Task(Arc<dyn Task>),
}

/// How long a worker stays without work.
const IDLE: Duration = Duration::from_secs(5);
/// How many times a worker lets others run before it sleeps.
const LINGER: usize = 16;

/// The pool. Dropping it lets the workers finish what they have and end.
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    limit: usize,
    state: Mutex<State>,
    work: Condvar,
    /// The length of `ready`, to look at without the lock.
    waiting: AtomicUsize,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Work>,
    parked: HashMap<Share, VecDeque<Work>>,
    /// How many operations of a share are being carried out; there are few shares at a time.
    running: Vec<(Share, usize)>,
    threads: usize,
    idle: usize,
    closing: bool,
    lingering: bool,
}

impl State {
    fn running(&self, share: Share) -> usize {
        self.running
            .iter()
            .find(|(s, _)| *s == share)
            .map_or(0, |(_, n)| *n)
    }

    fn begin(&mut self, share: Share) {
        match self.running.iter_mut().find(|(s, _)| *s == share) {
            Some((_, n)) => *n += 1,
            None => self.running.push((share, 1)),
        }
    }

    fn end(&mut self, share: Share) {
        if let Some(at) = self.running.iter().position(|(s, _)| *s == share) {
            self.running[at].1 -= 1;
            if self.running[at].1 == 0 {
                self.running.swap_remove(at);
            }
        }
    }

    /// Has the first of what is parked for a share looked at again.
    fn unpark(&mut self, share: Share) {
        if let Some(queue) = self.parked.get_mut(&share) {
            let next = queue.pop_front();
            if queue.is_empty() {
                self.parked.remove(&share);
            }
            self.ready.extend(next);
        }
    }
}

/// What may hold only a part of the workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Share {
    /// One open file, by its descriptor. Another file may get that number while the last worker
    /// of this one is still finishing: for that moment they share.
    File(i32),
    /// One filesystem's device.
    Device(u64),
}

/// The shares that a piece of work counts against.
fn shares(work: &Work) -> Option<[Share; 2]> {
    let (file, device) = match work {
        Work::Parcel(parcel) => {
            let handle = parcel.op.kind.handle()?;
            (handle.as_fd().as_raw_fd(), handle.filesystem().device())
        }
        Work::Task(task) => task.subject(),
    };
    Some([Share::File(file), Share::Device(device)])
}

impl Pool {
    pub(crate) fn new(core: &Arc<Core>, limit: usize) -> Pool {
        Pool(Arc::new(Inner {
            core: core.clone(),
            limit,
            state: Mutex::default(),
            work: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// Starts the first worker, to learn whether threads can be had at all.
    pub(crate) fn start(&self) -> Result<()> {
        let mut state = lock(&self.0.state);
        self.0
            .clone()
            .spawn(&mut state)
            .map_err(|e| Error::io("start a worker thread", &e))
    }

    /// Takes an operation in. It is queued even if no thread can be started for it, as long as
    /// there is one.
    pub(crate) fn push(&self, parcel: Parcel) {
        if let Some(Work::Parcel(stranded)) = self.enqueue(Work::Parcel(parcel)) {
            self.0.refuse(stranded);
        }
    }

    /// Has one more worker take turns at a task. Says whether there is one to do so.
    pub(crate) fn help(&self, task: Arc<dyn Task>) -> bool {
        self.enqueue(Work::Task(task)).is_none()
    }

    /// Queues a piece of work; gives it back if there is no thread and none can be started.
    fn enqueue(&self, work: Work) -> Option<Work> {
        let inner = &self.0;
        let mut state = lock(&inner.state);
        state.ready.push_back(work);
        inner.waiting.store(state.ready.len(), Relaxed);
        let awake = usize::from(state.lingering);
        if state.ready.len() <= awake {
            return None;
        }
        if state.idle + awake >= state.ready.len() || state.threads >= inner.limit {
            drop(state);
            inner.work.notify_one();
        } else if inner.clone().spawn(&mut state).is_err() && state.threads == 0 {
            return state.ready.pop_back();
        }
        None
    }

    /// How many workers one file may hold.
    pub(crate) fn share_of_a_file(&self) -> usize {
        self.0.most(Share::File(0))
    }

    /// Takes back an operation that no worker has begun, and completes it as stopped. Says whether
    /// it was there.
    pub(crate) fn cancel(&self, ticket: Ticket, why: ErrorKind) -> bool {
        let found = {
            let mut state = lock(&self.0.state);
            let State { ready, parked, .. } = &mut *state;
            let found = std::iter::once(ready)
                .chain(parked.values_mut())
                .find_map(|queue| {
                    let at = queue.iter().position(
                        |work| matches!(work, Work::Parcel(parcel) if parcel.ticket == ticket),
                    )?;
                    queue.remove(at)
                });
            // Others of its shares may have been parked until it would be done.
            let freed = found.as_ref().and_then(shares);
            freed
                .iter()
                .flatten()
                .for_each(|share| state.unpark(*share));
            self.0.waiting.store(state.ready.len(), Relaxed);
            if !state.ready.is_empty() {
                self.0.work.notify_one();
            }
            found
        };
        let Some(Work::Parcel(parcel)) = found else {
            return false;
        };
        let (reply, completion) = parcel.stop(&self.0.core, why);
        reply.deliver(&self.0.core, completion);
        true
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.0.core.process.is_here() {
            // A forked child: no worker is here to be told, and one may have held the lock.
            return;
        }
        lock(&self.0.state).closing = true;
        self.0.work.notify_all();
    }
}

impl Inner {
    fn spawn(self: Arc<Self>, state: &mut State) -> std::io::Result<()> {
        let inner = self.clone();
        spawn_without_signals(c"nowait-worker", move || inner.work())?;
        state.threads += 1;
        Ok(())
    }

    /// No thread can be had, and there is none: the operation fails with that.
    fn refuse(&self, parcel: Parcel) {
        let mut parcel = parcel;
        // Never begun: a close keeps its descriptor, to close it when it is dropped.
        let _ = parcel.op.kind.settle(Err(Errno::CANCELED));
        let (reply, completion) = parcel.finish(&self.core, Err(Errno::AGAIN), ServedBy::Caller);
        reply.deliver(&self.core, completion);
    }

    /// A worker's life.
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(work) = self.take(&mut state) {
                // Who is woken takes one and wakes the next: not the caller pays for all.
                let more = !state.ready.is_empty() && state.idle > 0;
                drop(state);
                if more {
                    self.work.notify_one();
                }
                let shares = shares(&work);
                let again = self.carry_out(work);
                state = lock(&self.state);
                self.give_back(&mut state, shares);
                state.ready.extend(again);
                self.waiting.store(state.ready.len(), Relaxed);
                if state.ready.is_empty() && !state.closing {
                    state = self.linger(state);
                }
                continue;
            }
            if state.closing {
                break;
            }
            state.idle += 1;
            let (back, timeout) = self
                .work
                .wait_timeout(state, IDLE)
                .unwrap_or_else(|e| e.into_inner());
            state = back;
            state.idle -= 1;
            if timeout.timed_out() && state.ready.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Does what a worker was given. Gives back a task that wants another turn.
    fn carry_out(&self, work: Work) -> Option<Work> {
        match work {
            Work::Parcel(parcel) => {
                let (parcel, result) = run(parcel);
                let (reply, completion) = parcel.finish(&self.core, result, ServedBy::Worker);
                reply.deliver(&self.core, completion);
                None
            }
            Work::Task(task) => {
                self.core.counters.count(Count::Turns);
                task.turn().then_some(Work::Task(task))
            }
        }
    }

    /// Whoever was just given a completion often has another operation at once: one worker at a
    /// time lets others run for a moment before it goes to sleep, which saves a wake-up.
    fn linger<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.lingering {
            return state;
        }
        state.lingering = true;
        drop(state);
        for _ in 0..LINGER {
            std::thread::yield_now();
            if self.waiting.load(Relaxed) > 0 {
                break;
            }
        }
        state = lock(&self.state);
        state.lingering = false;
        state
    }

    /// The next piece of work whose shares are not used up; those that are over theirs are parked.
    fn take(&self, state: &mut State) -> Option<Work> {
        let mut taken = None;
        while let Some(work) = state.ready.pop_front() {
            let shares = shares(&work);
            let over = shares
                .into_iter()
                .flatten()
                .find(|share| state.running(*share) >= self.most(*share));
            match over {
                Some(share) => state.parked.entry(share).or_default().push_back(work),
                None => {
                    for share in shares.into_iter().flatten() {
                        state.begin(share);
                    }
                    taken = Some(work);
                    break;
                }
            }
        }
        self.waiting.store(state.ready.len(), Relaxed);
        taken
    }

    /// One operation less of these shares: what was parked for one of them may go on.
    fn give_back(&self, state: &mut State, shares: Option<[Share; 2]>) {
        // The device's first: else a busy file's next operation always took the place that other
        // files of the device wait for.
        for share in shares.into_iter().flatten().rev() {
            state.end(share);
            state.unpark(share);
        }
        self.waiting.store(state.ready.len(), Relaxed);
    }

    /// How many workers a share may hold.
    fn most(&self, share: Share) -> usize {
        match share {
            Share::File(_) => self.limit.div_ceil(2),
            Share::Device(_) => (self.limit * 3).div_ceil(4),
        }
    }
}

/// Carries out one operation, to its end.
fn run(mut parcel: Parcel) -> (Parcel, std::result::Result<usize, Errno>) {
    loop {
        let kind = &mut parcel.op.kind;
        let ran = if kind.may_repeat() {
            retry::interrupted(|| kind.run())
        } else {
            kind.run()
        };
        let result = match ran {
            Ok(n) => {
                parcel.arrived(n, When::Untold);
                Ok(n)
            }
            Err(errno) => Err(errno),
        };
        if let Step::Done(result) = parcel.op.kind.settle(result) {
            return (parcel, result);
        }
    }
}
