//! Workers: a bounded pool of threads that carry out operations by their blocking form, and take
//! turns at tasks. An engine has one for each class of operations.
//!
//! A task is work of many turns that is no single operation: a directory scan. A worker takes one
//! turn at it, a batch of it, and puts it back at the end of the queue: whatever else waits is
//! served between two turns.
//!
//! Threads are started when there is work and no idle one, up to the limit, and end after a while
//! without work. One file or device may hold only its share of them: a file on a stalled disk must
//! not keep the others waiting. What is over such a share is parked until one of its own is done.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use super::class::Class;
use super::core::Core;
use super::reply::Unwanted;
use super::request::Request;
use super::stop::Stop;
use crate::completion::Ticket;
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::op::Step;
use crate::provenance::{Arrival, ServedBy};
use crate::retry;
use crate::stats::Count;
use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, spawn, wait_timeout, yield_now};
use crate::sys::Errno;

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
    Request(Request),
    Task(Arc<dyn Task>),
    /// To be dropped.
    Unwanted(Unwanted),
}

/// How long a worker stays without work.
const IDLE: Duration = Duration::from_secs(5);
/// How many times a worker lets others run before it sleeps.
const LINGER: usize = 16;

/// The pool. Dropping it lets the workers finish what they have and end.
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    class: Class,
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
    /// Reads that are being carried out and can be stopped.
    stoppable: Vec<(Ticket, Arc<Stop>)>,
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
type Shares = [Option<Share>; 2];

impl Pool {
    pub(crate) fn new(core: &Arc<Core>, class: Class, limit: usize) -> Pool {
        Pool(Arc::new(Inner {
            core: core.clone(),
            class,
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
    /// there is one; without any it is given back.
    #[must_use]
    pub(crate) fn push(&self, request: Request) -> Option<Request> {
        match self.enqueue(Work::Request(request)) {
            Some(Work::Request(stranded)) => Some(stranded),
            _ => None,
        }
    }

    /// Has a worker drop a completion. Without any worker it is dropped here.
    pub(crate) fn discard(&self, unwanted: Unwanted) {
        if let Some(Work::Unwanted(stranded)) = self.enqueue(Work::Unwanted(unwanted)) {
            stranded.discard(&self.0.core);
        }
    }

    /// Completes an operation that no thread can be had for: it fails with that.
    pub(crate) fn refuse(&self, mut request: Request) {
        let core = &self.0.core;
        // Never begun: a close keeps its descriptor, to close it when it is dropped.
        let _ = request.op.kind.settle(Err(Errno::CANCELED));
        let (reply, completion) = request.finish(core, Err(Errno::AGAIN), ServedBy::Caller);
        if let Some(unwanted) = reply.deliver(core, completion) {
            unwanted.discard(core);
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

    /// Takes back an operation that no worker has begun, and completes it as stopped; asks a read
    /// that can be stopped to stop. Says whether it was one of these.
    pub(crate) fn cancel(&self, ticket: Ticket, why: ErrorKind) -> bool {
        let found = {
            let mut state = lock(&self.0.state);
            let running = state.stoppable.iter().find(|(of, _)| *of == ticket);
            if let Some((_, stop)) = running {
                stop.ask(why);
                return true;
            }
            let State { ready, parked, .. } = &mut *state;
            let found = std::iter::once(ready)
                .chain(parked.values_mut())
                .find_map(|queue| {
                    let at = queue.iter().position(
                        |work| matches!(work, Work::Request(request) if request.ticket == ticket),
                    )?;
                    queue.remove(at)
                });
            // Others of its shares may have been parked until it would be done.
            let freed = found.as_ref().map(|work| self.0.shares(work));
            let freed = freed.iter().flatten().flatten();
            freed.for_each(|share| state.unpark(*share));
            self.0.waiting.store(state.ready.len(), Relaxed);
            if !state.ready.is_empty() {
                self.0.work.notify_one();
            }
            found
        };
        let Some(Work::Request(request)) = found else {
            return false;
        };
        let core = &self.0.core;
        let (reply, completion) = request.stop(core, why);
        if let Some(unwanted) = reply.deliver(core, completion) {
            // In the thread that cancels, which need not be one that may wait.
            self.discard(unwanted);
        }
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
        spawn(c"nowait-worker", move || inner.work())?;
        state.threads += 1;
        Ok(())
    }

    /// The shares that a piece of work counts against.
    fn shares(&self, work: &Work) -> Shares {
        let handle = match work {
            Work::Request(request) => request.op.kind.handle(),
            Work::Unwanted(unwanted) => unwanted.handle(),
            Work::Task(task) => {
                let (file, device) = task.subject();
                return [Some(Share::File(file)), Some(Share::Device(device))];
            }
        };
        let file = |handle: &Handle| Share::File(handle.as_fd().as_raw_fd());
        let device = |handle: &Handle| Share::Device(handle.filesystem().device());
        match self.class {
            Class::File => [handle.map(file), handle.map(device)],
            // Any number of them may begin in one directory.
            Class::Call => [None, handle.map(device)],
            // All pipes are of one device, and wait for different things.
            Class::Unbounded => [handle.map(file), None],
        }
    }

    /// How a read that waits without end is told to stop.
    fn stop_for(&self, work: &Work) -> Option<(Ticket, Arc<Stop>)> {
        match work {
            Work::Request(request) if self.class == Class::Unbounded => request
                .op
                .kind
                .can_be_stopped()
                .then(|| (request.ticket, Arc::default())),
            _ => None,
        }
    }

    /// A worker's life.
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(work) = self.take(&mut state) {
                let stop = self.stop_for(&work);
                // Before the lock is let go: from then on it is not found in the queue.
                state.stoppable.extend(stop.clone());
                // Who is woken takes one and wakes the next: not the caller pays for all.
                let more = !state.ready.is_empty() && state.idle > 0;
                drop(state);
                if more {
                    self.work.notify_one();
                }
                let shares = self.shares(&work);
                let again = self.carry_out(work, stop.as_ref().map(|(_, stop)| &**stop));
                state = lock(&self.state);
                if let Some((ticket, _)) = stop {
                    state.stoppable.retain(|(of, _)| *of != ticket);
                }
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
            let late;
            (state, late) = wait_timeout(&self.work, &self.state, state, IDLE);
            state.idle -= 1;
            if late && state.ready.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Does what a worker was given. Gives back a task that wants another turn.
    fn carry_out(&self, work: Work, stop: Option<&Stop>) -> Option<Work> {
        match work {
            Work::Request(request) => {
                let (request, result) = run(request, stop);
                let (reply, completion) = request.finish(&self.core, result, ServedBy::Worker);
                if let Some(unwanted) = reply.deliver(&self.core, completion) {
                    unwanted.discard(&self.core);
                }
                None
            }
            Work::Unwanted(unwanted) => {
                unwanted.discard(&self.core);
                None
            }
            Work::Task(task) => {
                self.core.policy.counters.count(Count::Turns);
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
            yield_now();
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
            let shares = self.shares(&work);
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
    fn give_back(&self, state: &mut State, shares: Shares) {
        // The device's first: else a busy file's next operation always took the place that other
        // files of the device wait for.
        for share in shares.into_iter().rev().flatten() {
            state.end(share);
            state.unpark(share);
        }
        self.waiting.store(state.ready.len(), Relaxed);
    }

    /// How many workers a share may hold.
    fn most(&self, share: Share) -> usize {
        match share {
            Share::Device(_) if self.class == Class::File => (self.limit * 3).div_ceil(4),
            Share::File(_) | Share::Device(_) => self.limit.div_ceil(2),
        }
    }
}

/// Carries out one operation, to its end.
fn run(mut request: Request, stop: Option<&Stop>) -> (Request, std::result::Result<usize, Errno>) {
    let mut tries = stop.is_none() && request.wants_origin();
    loop {
        if std::mem::take(&mut tries)
            && let Some(result) = request.try_cache()
        {
            return (request, result);
        }
        let kind = &mut request.op.kind;
        let repeats = kind.may_repeat();
        let mut run = || match stop {
            Some(stop) => stop.run(kind),
            None => kind.run(),
        };
        let result = if repeats {
            retry::interrupted(run)
        } else {
            run()
        };
        if let Ok(n) = result {
            request.arrived(n, Arrival::Indeterminate);
        }
        if result == Err(Errno::CANCELED) {
            request.stopped = request.stopped.or(stop.and_then(Stop::why));
        }
        if let Step::Done(result) = request.op.kind.settle(result) {
            return (request, result);
        }
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use super::*;
    use crate::completion::Completion;
    use crate::engine::completion_queue::CompletionQueue;
    use crate::engine::reply::Reply;
    use crate::engine::wait::Waiting;
    use crate::engine::{Options, Wait};
    use crate::op::{Nop, Op};

    const SCHEDULES: usize = 5_000;

    /// A task that wants two turns.
    struct Twice(AtomicUsize);

    impl Task for Twice {
        fn subject(&self) -> (i32, u64) {
            (7, 7)
        }

        fn turn(&self) -> bool {
            self.0.fetch_add(1, Relaxed) == 0
        }
    }

    fn push(pool: &Pool, queue: &Arc<CompletionQueue>, ticket: u64) {
        let reply = Reply::Queue(queue.clone(), Class::File);
        let (request, _) = Request::new(Op::from(Nop), None, Ticket(ticket), reply);
        assert!(pool.push(request).is_none());
    }

    /// Two threads push operations, one of which a third cancels if it comes in time. Each
    /// completes once, tasks get their turns, and the workers end with the pool.
    fn all_complete(workers: usize) {
        let core = Arc::new(Core::new(&Options::new().depth(8)));
        let pool = Arc::new(Pool::new(&core, Class::File, workers));
        let queue = Arc::new(CompletionQueue::default());
        queue.expect(4);
        let task = Arc::new(Twice(AtomicUsize::new(0)));
        let mut threads: Vec<_> = [1, 3]
            .map(|first| {
                let (pool, queue) = (pool.clone(), queue.clone());
                shuttle::thread::spawn(move || {
                    push(&pool, &queue, first);
                    push(&pool, &queue, first + 1);
                })
            })
            .into();
        let canceller = pool.clone();
        threads.push(shuttle::thread::spawn(move || {
            canceller.cancel(Ticket(2), ErrorKind::Cancelled);
        }));
        assert!(pool.help(task.clone()));
        let mut done: Vec<Completion> = Vec::new();
        queue.reap(&mut done, &Waiting::begin(Wait::For(4)), |_| ());
        let mut tickets: Vec<_> = done.iter().filter_map(|done| done.ticket).collect();
        tickets.sort_unstable();
        assert_eq!(tickets, [1, 2, 3, 4].map(Ticket));
        threads.into_iter().for_each(|t| t.join().unwrap());
        while task.0.load(Relaxed) < 2 {
            yield_now();
        }
    }

    #[test]
    fn what_is_pushed_completes_once() {
        shuttle::check_random(|| all_complete(2), SCHEDULES);
        shuttle::check_pct(|| all_complete(2), SCHEDULES, 3);
    }

    #[test]
    fn one_worker_is_enough() {
        shuttle::check_random(|| all_complete(1), SCHEDULES);
    }
}
