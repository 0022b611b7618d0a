//! The workers of one class of operations: a bounded pool of threads that run operations in their
//! blocking form and take turns at tasks.
//!
//! A task is work of many turns that is not a single operation, such as a directory scan. A worker
//! does one turn and puts the task back at the end of the queue. Other work in the queue is served
//! between two turns.
//!
//! A thread is started if there is work and no idle worker, up to the limit. A worker ends after
//! some time without work. A pool with a spare worker always has an idle one, within the limit: a
//! worker that begins work starts the next one, and the submitting thread starts none. One file or
//! device may use only its share of the workers, so that a file on a stalled disk does not block
//! the others. Work beyond that share is parked until other work of the share is done.

mod state;
mod stop;

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use super::class::Class;
use super::completion::Ticket;
use super::completion_target::DroppedCompletion;
use super::core::Core;
use super::request::{Outcome, Request};
use super::yield_before_sleep::YieldBeforeSleep;
use crate::error::{Error, ErrorKind, Result};
use crate::handle::Handle;
use crate::op::{Body, Step};
use crate::policy::provenance::{Arrival, ServedBy};
use crate::policy::stats::Count;
use crate::sys::sync::atomic::AtomicUsize;
use crate::sys::sync::atomic::Ordering::Relaxed;
use crate::sys::sync::{Condvar, Mutex, MutexGuard, lock, spawn, wait_timeout};
use crate::sys::{Errno, retry};
pub(crate) use state::Task;
use state::{LimitKey, LimitKeys, State, Work};
use stop::Stop;

/// The time after which a worker without work ends.
const IDLE: Duration = Duration::from_secs(5);
/// The number of yields of a worker before it sleeps.
const YIELDS: usize = 16;

/// The pool. After it is dropped, the workers finish the work that they have, and end.
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    class: Class,
    limit: usize,
    /// Workers start the other workers, see `Options::spare_worker`.
    spare: bool,
    state: Mutex<State>,
    work: Condvar,
    /// The length of `ready`, for reading without the lock.
    waiting: AtomicUsize,
}

impl Pool {
    pub(super) fn new(core: &Arc<Core>, class: Class, limit: usize, spare: bool) -> Pool {
        Pool(Arc::new(Inner {
            core: core.clone(),
            class,
            limit,
            spare,
            state: Mutex::default(),
            work: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// Starts the first worker.
    pub(super) fn start(&self) -> Result<()> {
        let mut state = lock(&self.0.state);
        self.0
            .clone()
            .spawn(&mut state)
            .map_err(|e| Error::io("start a worker thread", &e))
    }

    /// Queues an operation. It is queued even if no thread can be started for it, as long as the
    /// pool has one. Without a thread it is returned.
    #[must_use]
    pub(crate) fn push(&self, request: Request) -> Option<Request> {
        match self.enqueue(Work::Request(request)) {
            Some(Work::Request(stranded)) => Some(stranded),
            _ => None,
        }
    }

    /// Has a worker drop a completion. It is dropped in the calling thread if there is no worker.
    pub(crate) fn discard(&self, dropped: DroppedCompletion) {
        if let Some(Work::Discard(stranded)) = self.enqueue(Work::Discard(dropped)) {
            stranded.discard(&self.0.core);
        }
    }

    /// Completes an operation with EAGAIN, because no thread can be started for it. Data that the
    /// calling thread has transferred counts.
    pub(crate) fn refuse(&self, request: Request) {
        let core = &self.0.core;
        let (request, outcome) = request.stop(ErrorKind::Cancelled);
        let result = outcome.result.map_err(|_| Errno::AGAIN);
        if let Some(dropped) = request.deliver(core, Outcome { result, ..outcome }) {
            dropped.discard(core);
        }
    }

    /// Has one more worker take turns at a task. Returns false if there is no worker for it.
    pub(crate) fn add_worker(&self, task: Arc<dyn Task>) -> bool {
        self.enqueue(Work::Task(task)).is_none()
    }

    /// Queues a piece of work. Returns it if there is no thread and none can be started.
    fn enqueue(&self, work: Work) -> Option<Work> {
        let inner = &self.0;
        let mut state = lock(&inner.state);
        state.ready.push_back(work);
        inner.waiting.store(state.ready.len(), Relaxed);
        let awake = usize::from(state.yielding);
        if state.ready.len() <= awake {
            return None;
        }
        let spare = inner.spare && state.threads > 0;
        if spare || state.idle + awake >= state.ready.len() || state.threads >= inner.limit {
            drop(state);
            inner.work.notify_one();
        } else if inner.clone().spawn(&mut state).is_err() && state.threads == 0 {
            return state.ready.pop_back();
        }
        None
    }

    /// The number of workers that one file may use.
    pub(crate) fn share_of_a_file(&self) -> usize {
        self.0.most(LimitKey::File(0))
    }

    /// Removes an operation that no worker has begun, and completes it as stopped. A running read
    /// that can be stopped is asked to stop. Returns true if the operation was one of these.
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
            // Work of the same shares may have been parked until this operation ended.
            let freed = found.as_ref().map(|work| self.0.limit_keys(work));
            let freed = freed.iter().flatten().flatten();
            freed.for_each(|key| state.unpark(*key));
            self.0.waiting.store(state.ready.len(), Relaxed);
            if !state.ready.is_empty() {
                self.0.work.notify_one();
            }
            found
        };
        let Some(Work::Request(request)) = found else {
            return false;
        };
        let (request, outcome) = request.stop(why);
        if let Some(dropped) = request.deliver(&self.0.core, outcome) {
            // A worker drops the completion: the cancelling thread may be one that must not wait.
            self.discard(dropped);
        }
        true
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.0.core.process.is_here() {
            // In a forked child there are no workers, and one of them may have held the lock at the
            // fork.
            return;
        }
        lock(&self.0.state).closing = true;
        self.0.work.notify_all();
    }
}

impl Inner {
    fn spawn(self: Arc<Self>, state: &mut State) -> std::io::Result<()> {
        let inner = self;
        spawn(c"nowait-worker", move || inner.work())?;
        state.threads += 1;
        state.idle += 1;
        Ok(())
    }

    /// The shares that a piece of work counts against.
    fn limit_keys(&self, work: &Work) -> LimitKeys {
        let handle = match work {
            Work::Request(request) => request.op.body.kind.handle(),
            Work::Discard(dropped) => dropped.handle(),
            Work::Task(task) => {
                let (file, device) = task.subject();
                return [Some(LimitKey::File(file)), Some(LimitKey::Device(device))];
            }
        };
        let file = |handle: &Handle| LimitKey::File(handle.as_fd().as_raw_fd());
        let device = |handle: &Handle| LimitKey::Device(handle.filesystem().device());
        match self.class {
            Class::File => [handle.map(file), handle.map(device)],
            // Calls are not limited by file: many of them may work in one directory.
            Class::Call => [None, handle.map(device)],
            // All pipes have the same device number, and a read of each waits for another program.
            Class::Unbounded => [handle.map(file), None],
        }
    }

    /// The means to stop an operation, if it is a read that may wait without end.
    fn stop_for(&self, work: &Work) -> Option<(Ticket, Arc<Stop>)> {
        let Work::Request(request) = work else {
            return None;
        };
        let stoppable = self.class == Class::Unbounded && request.op.body.kind.can_be_stopped();
        stoppable.then(|| (request.ticket, Arc::default()))
    }

    /// The loop of a worker.
    fn work(self: Arc<Self>) {
        let mut before_sleep = YieldBeforeSleep::new(YIELDS);
        let mut state = lock(&self.state);
        state.idle -= 1;
        loop {
            if let Some((work, limit_keys)) = self.take(&mut state) {
                let stop = self.stop_for(&work);
                // Registered before the lock is released: from then on the operation is not in the
                // queue.
                state.stoppable.extend(stop.clone());
                let spare = state.idle > 0 || state.yielding || state.threads >= self.limit;
                if self.spare && !spare && !state.closing {
                    // If no thread can be started, the next worker that takes work tries again.
                    let _ = self.clone().spawn(&mut state);
                }
                // Each woken worker takes one piece and wakes the next worker, so that the
                // submitter does not pay for all wake-ups.
                let more = !state.ready.is_empty() && state.idle > 0;
                drop(state);
                if more {
                    self.work.notify_one();
                }
                let again = self.carry_out(work, stop.as_ref().map(|(_, stop)| &**stop));
                state = lock(&self.state);
                if let Some((ticket, _)) = stop {
                    state.stoppable.retain(|(of, _)| *of != ticket);
                }
                self.give_back(&mut state, limit_keys);
                state.ready.extend(again);
                self.waiting.store(state.ready.len(), Relaxed);
                if state.ready.is_empty() && !state.closing {
                    state = self.yield_first(&mut before_sleep, state);
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
            let spare = self.spare && state.idle == 0 && !state.yielding;
            if late && state.ready.is_empty() && !spare {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Carries out a piece of work. Returns a task that needs another turn.
    fn carry_out(&self, work: Work, stop: Option<&Stop>) -> Option<Work> {
        let dropped = match work {
            Work::Request(request) => {
                let (request, result) = run(request, stop);
                let by = ServedBy::Worker;
                request.deliver(&self.core, Outcome { result, by })
            }
            Work::Discard(dropped) => Some(dropped),
            Work::Task(task) => {
                self.core.policy.counters.count(Count::Turns);
                return task.run_once().then_some(Work::Task(task));
            }
        };
        if let Some(dropped) = dropped {
            dropped.discard(&self.core);
        }
        None
    }

    /// Calls sched_yield(2) a few times before the worker sleeps. One worker at a time does so. A
    /// thread that just received a completion often submits the next operation soon, and the yields
    /// cost less than a wake-up.
    fn yield_first<'a>(
        &'a self,
        before_sleep: &mut YieldBeforeSleep,
        mut state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        if state.yielding {
            return state;
        }
        state.yielding = true;
        drop(state);
        before_sleep.until(|| self.waiting.load(Relaxed) > 0);
        state = lock(&self.state);
        state.yielding = false;
        state
    }

    /// Returns the next piece of work whose shares are not used up. Work beyond its shares is
    /// parked. If it was unparked for another share, the next work of that share takes its place.
    fn take(&self, state: &mut State) -> Option<(Work, LimitKeys)> {
        let mut taken = None;
        while let Some(work) = state.ready.pop_front() {
            let limit_keys = self.limit_keys(&work);
            let is_over = |state: &State, key| state.running(key) >= self.most(key);
            let mut keys = limit_keys.into_iter().flatten();
            match keys.find(|key| is_over(state, *key)) {
                Some(over) => {
                    state.parked.entry(over).or_default().push_back(work);
                    for key in limit_keys.into_iter().flatten() {
                        if !is_over(state, key) {
                            state.unpark(key);
                        }
                    }
                }
                None => {
                    for key in limit_keys.into_iter().flatten() {
                        state.begin(key);
                    }
                    taken = Some((work, limit_keys));
                    break;
                }
            }
        }
        self.waiting.store(state.ready.len(), Relaxed);
        taken
    }

    /// Ends one operation of these shares, and releases work that was parked for them.
    fn give_back(&self, state: &mut State, limit_keys: LimitKeys) {
        // The device's share comes first. Otherwise the next operation of a busy file would always
        // take the share that other files of the device wait for.
        for key in limit_keys.into_iter().rev().flatten() {
            state.end(key);
            state.unpark(key);
        }
    }

    /// The number of workers that a share may use.
    fn most(&self, key: LimitKey) -> usize {
        match key {
            LimitKey::Device(_) if self.class == Class::File => (self.limit * 3).div_ceil(4),
            LimitKey::File(_) | LimitKey::Device(_) => self.limit.div_ceil(2),
        }
    }
}

/// Carries out one operation completely.
fn run(mut request: Request, stop: Option<&Stop>) -> (Request, std::result::Result<usize, Errno>) {
    if stop.is_none()
        && request.wants_origin()
        && let Some(result) = request.read_cached()
    {
        return (request, result);
    }
    loop {
        let kind = &mut request.op.body.kind;
        let repeats = kind.may_repeat();
        let mut run = || match stop {
            Some(stop) => stop.run(kind),
            None => kind.run(),
        };
        let result = match repeats {
            true => retry::interrupted(run),
            false => run(),
        };
        if let Ok(n) = result {
            request.arrived(n, Arrival::Indeterminate);
        }
        let Body { kind, progress, .. } = &mut *request.op.body;
        if result == Err(Errno::CANCELED) {
            progress.stopped = progress.stopped.or(stop.and_then(Stop::why));
        }
        if let Step::Done(result) = kind.settle(result) {
            return (request, result);
        }
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use super::*;
    use crate::engine::completion::Completion;
    use crate::engine::completion_queue::CompletionQueue;
    use crate::engine::completion_target::CompletionTarget;
    use crate::engine::wait::Waiting;
    use crate::engine::{Options, Wait};
    use crate::op::{Nop, Op};
    use crate::sys::sync::yield_now;

    const SCHEDULES: usize = 5_000;

    /// A task that needs two turns.
    struct Twice(AtomicUsize);

    impl Task for Twice {
        fn subject(&self) -> (i32, u64) {
            (7, 7)
        }

        fn run_once(&self) -> bool {
            self.0.fetch_add(1, Relaxed) == 0
        }
    }

    fn push(pool: &Pool, queue: &Arc<CompletionQueue>, ticket: u64) {
        let target = CompletionTarget::Queue(queue.clone(), Class::File);
        let request = Request::new(Op::from(Nop), Ticket(ticket), target);
        assert!(pool.push(request).is_none());
    }

    /// Two threads push operations, and a third cancels one of them if it is early enough. Each
    /// operation completes once, the task gets its turns, and the workers end with the pool.
    fn all_complete(workers: usize, spare: bool) {
        let core = Arc::new(Core::new(&Options::new().depth(8)));
        let pool = Arc::new(Pool::new(&core, Class::File, workers, spare));
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
        assert!(pool.add_worker(task.clone()));
        let mut done: Vec<Completion> = Vec::new();
        queue.reap(&mut done, usize::MAX, &Waiting::begin(Wait::For(4)), |_| ());
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
        shuttle::check_random(|| all_complete(2, false), SCHEDULES);
        shuttle::check_pct(|| all_complete(2, false), SCHEDULES, 3);
    }

    #[test]
    fn what_is_pushed_to_a_spare_worker_completes_once() {
        shuttle::check_random(|| all_complete(3, true), SCHEDULES);
        shuttle::check_pct(|| all_complete(3, true), SCHEDULES, 3);
    }

    #[test]
    fn one_worker_is_enough() {
        shuttle::check_random(|| all_complete(1, false), SCHEDULES);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::engine::completion_queue::CompletionQueue;
    use crate::engine::completion_target::CompletionTarget;
    use crate::engine::wait::Waiting;
    use crate::engine::{Options, Wait};
    use crate::op::{Op, Write};
    use rustix::thread::{current_timer_slack, set_current_timer_slack};
    use std::num::NonZeroU64;
    use std::sync::{Barrier, mpsc};

    /// A task that waits for others, and reports a property of its thread that is inherited.
    struct Together {
        file: i32,
        all: Arc<Barrier>,
        timer_slack: Mutex<mpsc::Sender<u64>>,
    }

    impl Task for Together {
        fn subject(&self) -> (i32, u64) {
            (self.file, self.file as u64)
        }

        fn run_once(&self) -> bool {
            self.all.wait();
            let sender = lock(&self.timer_slack);
            sender.send(current_timer_slack().unwrap()).unwrap();
            false
        }
    }

    /// A task that no worker runs.
    struct Of(i32);

    impl Task for Of {
        fn subject(&self) -> (i32, u64) {
            (self.0, 1)
        }

        fn run_once(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_share_of_a_device_is_not_lost_to_a_file_that_has_used_up_its_own() {
        let core = Arc::new(Core::new(&Options::new()));
        // A file may use four workers, and a device six.
        let pool = Pool::new(&core, Class::File, 8, false);
        let (a, b, c) = (1, 2, 3);
        let mut state = State::default();
        for file in [a, a, a, b, b, b, a, a, a, c] {
            state.ready.push_back(Work::Task(Arc::new(Of(file))));
        }
        let take = |state: &mut State| match pool.0.take(state) {
            Some((Work::Task(task), _)) => Some(task.subject().0),
            _ => None,
        };
        let taken: Vec<i32> = std::iter::from_fn(|| take(&mut state)).collect();
        assert_eq!(taken, [a, a, a, b, b, b]);
        let of_b = [Some(LimitKey::File(b)), Some(LimitKey::Device(1))];
        pool.0.give_back(&mut state, of_b);
        assert_eq!(take(&mut state), Some(a), "its fourth");
        pool.0.give_back(&mut state, of_b);
        assert_eq!(take(&mut state), Some(c));
        pool.0.give_back(&mut state, of_b);
        assert_eq!(take(&mut state), None);
        let of_a = [Some(LimitKey::File(a)), Some(LimitKey::Device(1))];
        pool.0.give_back(&mut state, of_a);
        assert_eq!(take(&mut state), Some(a));
        pool.0.give_back(&mut state, of_a);
        assert_eq!(take(&mut state), Some(a), "nothing is lost");
    }

    #[test]
    fn a_spare_worker_starts_the_others() {
        let core = Arc::new(Core::new(&Options::new()));
        let pool = Pool::new(&core, Class::File, 5, true);
        pool.start().unwrap();
        let own = current_timer_slack().unwrap();
        let (sender, receiver) = mpsc::channel();
        // The tasks run at the same time, each in a worker.
        let all = Arc::new(Barrier::new(5));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                set_current_timer_slack(NonZeroU64::new(own + 1)).unwrap();
                for file in 0..5 {
                    let (all, timer_slack) = (all.clone(), Mutex::new(sender.clone()));
                    let task = Arc::new(Together {
                        file,
                        all,
                        timer_slack,
                    });
                    assert!(pool.add_worker(task));
                }
            });
        });
        drop(sender);
        let seen: Vec<u64> = receiver.iter().take(5).collect();
        assert_eq!(seen, [own; 5]);
    }

    #[test]
    fn what_the_caller_has_written_counts_if_there_is_no_thread() {
        let core = Arc::new(Core::new(&Options::new()));
        let pool = Pool::new(&core, Class::File, 1, false);
        let queue = Arc::new(CompletionQueue::default());
        let handle = Handle::new(tempfile::tempfile().unwrap()).unwrap();
        for (written, expected) in [(3, Ok(3)), (0, Err(Some(libc::EAGAIN)))] {
            let mut write = Write::new(&handle, Box::new("bytes"), 0);
            write.advance(written);
            let target = CompletionTarget::Queue(queue.clone(), Class::File);
            queue.expect(1);
            pool.refuse(Request::new(Op::from(write), Ticket(1), target));
            let mut done = Vec::new();
            queue.reap(&mut done, 1, &Waiting::begin(Wait::For(1)), |_| ());
            let result = done.pop().unwrap().result;
            assert_eq!(result.map_err(|error| error.errno()), expected);
        }
    }
}
