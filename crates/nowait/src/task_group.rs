//! A task group: the threads that work on a scan, a walk or many files, and the threads and tasks
//! that wait for results.
//!
//! ```text
//!   caller ── next ──► anything ready? ─ yes ─► returned
//!                          │ no
//!                          ├─ job short and fast so far: runs a piece
//!                          └─ else waits;  workers: pick ─► run ─► finish, one piece per turn
//! ```
//!
//! A [`Job`] is work in pieces. A lock protects its state. A piece runs without the lock. The
//! calling thread begins alone, so that a small cached directory needs no other thread. If the job
//! is long or slow, workers take it over and the calling thread waits. A stalled device then blocks
//! workers, but not the calling thread.
//!
//! **Number of workers.** A worker that slept while it ran a piece waited for the device (or a
//! lock). More workers then put more requests into the device's queue. If no worker sleeps,
//! everything is cached, and more workers than processors slow each other down. A job adds workers,
//! up to its limit, while pieces that sleep take more than a fifth of the time. Otherwise it has as
//! many workers as there are processors. A turn is one piece. The pool serves other work between
//! turns.

mod job;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use job::known_processors;
pub(crate) use job::{Job, Stats, processors};

use crate::engine::{Engine, Task};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::process::Owner;
use crate::sys::sync::{Condvar, Mutex, MutexGuard, lock};
use crate::sys::thread::sleeps;
use crate::user_code::waker::WakerSlot;

/// The time for which a calling thread works alone once it has slept. It waits for the device then,
/// and many workers wait less than one thread.
const SLEPT: Duration = Duration::from_millis(1);
/// The time for which a calling thread works alone while it has not slept. Everything is cached so
/// far, and making an engine and starting its workers takes as long as getting the metadata of one
/// or two thousand entries.
const AWAKE: Duration = Duration::from_millis(3);

pub(crate) struct TaskGroup<J: Job> {
    /// The group itself, to be queued at the engine again.
    me: Weak<TaskGroup<J>>,
    subject: (i32, u64),
    operation: &'static str,
    process: Owner,
    over: AtomicBool,
    state: Mutex<State<J>>,
    /// Notifies threads that wait for an item.
    ready: Condvar,
    /// The waker of the future that waits for an item.
    waker: WakerSlot,
}

struct State<J> {
    job: J,
    engine: Option<Engine>,
    stage: Stage,
    /// The time for which the calling thread has worked alone.
    alone: Duration,
    /// The number of workers that take turns, or are about to.
    workers: usize,
    /// The number of pieces that are running.
    running: usize,
    max_workers: usize,
    /// The number of processors. `None` until a worker has determined it, because that reads files.
    fast_workers: Option<usize>,
    /// The time of a piece, and the time of pieces that slept, as moving averages in seconds. The
    /// second one counts 0 for a piece that did not sleep.
    time: f32,
    time_asleep: f32,
    waiting: usize,
    cancelled: Cancelled,
    stats: Stats,
}

/// The threads that run pieces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The calling thread, so far. The job may be small.
    Caller,
    /// Workers.
    Workers,
    /// The calling thread, because no worker can be started.
    NoWorkers,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cancelled {
    No,
    /// The job is cancelled, and the waiting thread or task has not been told.
    Pending,
    Delivered,
}

impl<J: Job> std::fmt::Debug for TaskGroup<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskGroup")
            .field("operation", &self.operation)
            .finish_non_exhaustive()
    }
}

impl<J: Job> State<J> {
    /// Returns true if workers wait for the device: pieces that slept took more than a fifth of the
    /// recent time.
    fn slow(&self) -> bool {
        self.time_asleep > self.time / 5.0
    }

    fn wanted(&self) -> usize {
        let more = usize::from(self.job.is_held_up());
        if self.slow() {
            self.max_workers
        } else {
            let fast_workers = self.fast_workers.unwrap_or(1);
            self.max_workers.min(fast_workers + more)
        }
    }

    /// The time for which the calling thread continues to work alone.
    fn patience(&self) -> Duration {
        let alone = if self.stats.waited > 0 { SLEPT } else { AWAKE };
        alone.saturating_sub(self.alone)
    }

    /// The number of additional workers for which there are pieces.
    fn missing(&self) -> usize {
        if self.stage != Stage::Workers || self.cancelled != Cancelled::No {
            return 0;
        }
        let busy = self.running + self.job.runnable();
        self.wanted().min(busy).saturating_sub(self.workers)
    }

    fn is_over(&self) -> bool {
        self.running == 0 && self.job.runnable() == 0 && !self.job.has_ready()
    }

    /// Returns true if waiting threads and tasks have to be woken.
    fn should_wake(&self) -> bool {
        self.cancelled != Cancelled::No || self.job.has_ready() || self.is_over()
    }

    /// The immediate answer to a request for the next item. `None` means wait.
    #[allow(
        clippy::option_option,
        reason = "an answer, which may be the end, or none yet"
    )]
    fn try_answer(&mut self, operation: &'static str) -> Option<Option<Result<J::Out>>> {
        match self.cancelled {
            Cancelled::Pending => {
                self.cancelled = Cancelled::Delivered;
                let error = Error::new(operation, ErrorKind::Cancelled);
                Some(Some(Err(error)))
            }
            Cancelled::Delivered => Some(None),
            Cancelled::No => match self.job.pop_ready() {
                Some(out) => Some(Some(out)),
                None if self.is_over() => Some(None),
                None => None,
            },
        }
    }
}

impl<J: Job> TaskGroup<J> {
    /// Makes a group for a job. `subject` is the descriptor and the device of the job. The workers
    /// are those of `engine`, or else of the process's engine, which is made only when workers are
    /// needed.
    pub(crate) fn new(
        operation: &'static str,
        job: J,
        subject: (i32, u64),
        engine: Option<Engine>,
    ) -> Arc<TaskGroup<J>> {
        Arc::new_cyclic(|me| TaskGroup {
            me: me.clone(),
            subject,
            operation,
            process: Owner::current(),
            over: false.into(),
            state: Mutex::new(State {
                job,
                engine,
                stage: Stage::Caller,
                alone: Duration::ZERO,
                workers: 0,
                running: 0,
                max_workers: 0,
                fast_workers: None,
                time: 0.0,
                time_asleep: 0.0,
                waiting: 0,
                cancelled: Cancelled::No,
                stats: Stats::default(),
            }),
            ready: Condvar::new(),
            waker: WakerSlot::default(),
        })
    }

    /// Runs `inspect` on the job and the counters. Returns `None` in a forked child, where a thread
    /// that no longer exists may have held the lock.
    pub(crate) fn inspect<T>(&self, inspect: impl FnOnce(&J, Stats) -> T) -> Option<T> {
        self.process.is_here().then(|| {
            let state = lock(&self.state);
            inspect(&state.job, state.stats)
        })
    }

    /// Changes the job, so that it has more pieces. Has no effect in a forked child.
    pub(crate) fn update(&self, update: impl FnOnce(&mut J)) {
        if self.process.is_here() {
            let mut state = lock(&self.state);
            if state.cancelled == Cancelled::No {
                update(&mut state.job);
            }
        }
    }

    /// The next item, or `None` at the end. The calling thread runs pieces at first, and
    /// waits later.
    pub(crate) fn next(&self) -> Option<Result<J::Out>> {
        if let Err(error) = self.check_process() {
            return Some(Err(error));
        }
        let mut state = lock(&self.state);
        loop {
            if let Some(answer) = state.try_answer(self.operation) {
                drop(self.call_workers(state));
                return answer;
            }
            if state.stage != Stage::Workers {
                let slow = state.slow();
                if let Some(piece) = state.job.pick(slow) {
                    state = self.run_in_caller(state, piece);
                    continue;
                }
            }
            state = self.call_workers(state);
            // Calling workers releases the lock for a moment.
            let others = state.stage == Stage::Workers || state.running > 0;
            if others && !state.should_wake() {
                state.waiting += 1;
                state = self.ready.wait(state).unwrap_or_else(|e| e.into_inner());
                state.waiting -= 1;
            }
        }
    }

    /// Like `next`, for a future. It runs no pieces in the calling thread.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Result<J::Out>>> {
        if let Err(error) = self.check_process() {
            return Poll::Ready(Some(Err(error)));
        }
        if let Some(answer) = self.try_next() {
            return Poll::Ready(answer);
        }
        self.waker.register(cx.waker());
        // An item may have come before this waker was registered.
        let Some(answer) = self.try_next() else {
            return Poll::Pending;
        };
        self.waker.clear();
        Poll::Ready(answer)
    }

    /// Returns true if the calling thread runs no more pieces. False in a forked child.
    pub(crate) fn is_left_to_workers(&self) -> bool {
        self.process.is_here() && lock(&self.state).stage == Stage::Workers
    }

    /// The next item from workers. `None` if they have not produced one yet.
    #[allow(
        clippy::option_option,
        reason = "an answer, which may be the end, or none yet"
    )]
    pub(crate) fn try_next(&self) -> Option<Option<Result<J::Out>>> {
        let mut state = lock(&self.state);
        if state.stage == Stage::Caller {
            state.stage = Stage::Workers;
        }
        let answer = state.try_answer(self.operation);
        let state = self.call_workers(state);
        if answer.is_none() && state.stage == Stage::NoWorkers {
            let error = Error::os("start a worker thread", crate::sys::Errno::AGAIN);
            return Some(Some(Err(error)));
        }
        answer
    }

    /// Starts workers, before anything waits for items.
    pub(crate) fn start(&self) -> Result<()> {
        self.check_process()?;
        let mut state = lock(&self.state);
        state.stage = Stage::Workers;
        let state = self.call_workers(state);
        if state.stage == Stage::NoWorkers {
            return Err(Error::os("start a worker thread", crate::sys::Errno::AGAIN));
        }
        Ok(())
    }

    /// Cancels the job, and returns immediately. A worker that a device holds returns when the
    /// device answers.
    pub(crate) fn cancel(&self) {
        if self.process.is_here() {
            self.end();
            self.waker.wake();
        }
    }

    /// Cancels the job, of which no more items are taken. No task is woken: the only one that polled
    /// the job is dropping it.
    pub(crate) fn abandon(&self) {
        if self.process.is_here() {
            self.end();
            self.waker.clear();
        }
    }

    fn end(&self) {
        self.over.store(true, Relaxed);
        let mut state = lock(&self.state);
        if state.cancelled == Cancelled::No {
            state.cancelled = if state.is_over() {
                Cancelled::Delivered
            } else {
                Cancelled::Pending
            };
            state.job.clear();
        }
        self.ready.notify_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        if !self.process.is_here() {
            return true;
        }
        let state = lock(&self.state);
        state.cancelled != Cancelled::No || state.is_over()
    }

    fn check_process(&self) -> Result<()> {
        if self.process.is_here() {
            Ok(())
        } else {
            Err(Error::new(self.operation, ErrorKind::Forked))
        }
    }

    /// Runs one piece in the calling thread. Workers take over a job that is long or slow.
    fn run_in_caller<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<J>>,
        piece: J::Piece,
    ) -> MutexGuard<'a, State<J>> {
        state.running += 1;
        let start = Instant::now();
        // A sleep is noticed only after the piece.
        let left = state.patience().min(SLEPT);
        let until = (state.stage == Stage::Caller).then_some(start + left);
        drop(state);
        let (mut state, done) = self.run_piece(piece, until);
        state.alone += start.elapsed();
        state.stats.by_caller += 1;
        if state.stage == Stage::Caller && state.patience().is_zero() {
            state.stage = Stage::Workers;
        }
        self.finish(state, done)
    }

    /// Runs a piece, and records if it slept.
    fn run_piece(
        &self,
        piece: J::Piece,
        until: Option<Instant>,
    ) -> (MutexGuard<'_, State<J>>, J::Done) {
        let is_timed = J::is_timed(&piece);
        let (before, began) = (sleeps(), Instant::now());
        let done = J::run(piece, until, &|| self.is_cancelled());
        let slept = sleeps() > before;
        let time = began.elapsed().as_secs_f32();
        let mut state = lock(&self.state);
        state.stats.waited += u64::from(slept);
        if is_timed {
            let asleep = if slept { time } else { 0.0 };
            state.time += (time - state.time) / 8.0;
            state.time_asleep += (asleep - state.time_asleep) / 8.0;
        }
        (state, done)
    }

    fn is_cancelled(&self) -> bool {
        self.over.load(Relaxed)
    }

    fn finish<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<J>>,
        done: J::Done,
    ) -> MutexGuard<'a, State<J>> {
        state.running -= 1;
        if state.cancelled == Cancelled::No {
            state.job.finish_piece(done);
            state.job.close();
        }
        if state.waiting > 0 && state.should_wake() {
            self.ready.notify_all();
        }
        state
    }

    /// Adds workers if there are pieces for more of them.
    fn call_workers<'a>(&'a self, mut state: MutexGuard<'a, State<J>>) -> MutexGuard<'a, State<J>> {
        if state.stage != Stage::Workers || (state.max_workers > 0 && state.missing() == 0) {
            return state;
        }
        let engine = match &state.engine {
            Some(engine) => Ok(engine.clone()),
            None => Engine::process(),
        };
        let Some(engine) = engine.ok().filter(|e| e.check_process("scan").is_ok()) else {
            state.stage = Stage::NoWorkers;
            return state;
        };
        if state.max_workers == 0 {
            state.max_workers = state
                .job
                .max_workers()
                .min(engine.max_task_workers())
                .max(1);
            let most = state.max_workers;
            state.fast_workers = known_processors().map(|n| n.min(most));
            state.job.grant(most);
            state.engine = Some(engine.clone());
        }
        let missing = state.missing();
        state.workers += missing;
        state.stats.workers = state.stats.workers.max(state.workers);
        drop(state);
        let mut called = 0;
        while called < missing
            && let Some(me) = self.me.upgrade()
            && engine.add_worker(me)
        {
            called += 1;
        }
        let mut state = lock(&self.state);
        state.workers -= missing - called;
        if state.workers == 0 && missing > 0 && called == 0 {
            state.stage = Stage::NoWorkers;
            self.ready.notify_all();
        }
        state
    }
}

impl<J: Job> Task for TaskGroup<J> {
    fn subject(&self) -> (i32, u64) {
        self.subject
    }

    fn run_once(&self) -> bool {
        let processors = processors();
        let mut state = lock(&self.state);
        let most = state.max_workers;
        state.fast_workers.get_or_insert(processors.min(most));
        let slow = state.slow();
        let piece = match state.cancelled {
            Cancelled::No if state.workers <= state.wanted() => state.job.pick(slow),
            _ => None,
        };
        let Some(piece) = piece else {
            state.workers -= 1;
            return false;
        };
        state.running += 1;
        drop(self.call_workers(state));

        let (mut state, done) = self.run_piece(piece, None);
        state.stats.by_workers += 1;
        let state = self.finish(state, done);
        let ready = state.should_wake();
        let mut state = self.call_workers(state);
        let again = state.cancelled == Cancelled::No
            && state.workers <= state.wanted()
            && state.job.runnable() > 0;
        if !again {
            state.workers -= 1;
        }
        drop(state);
        if ready {
            self.waker.wake();
        }
        again
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use std::future::poll_fn;

    use super::*;

    const SCHEDULES: usize = 10_000;

    /// A job of `left` pieces, each of which returns its number.
    struct Pieces {
        left: usize,
        done: Vec<usize>,
    }

    impl Job for Pieces {
        type Piece = usize;
        type Done = usize;
        type Out = usize;

        fn pick(&mut self, _: bool) -> Option<usize> {
            self.left = self.left.checked_sub(1)?;
            Some(self.left)
        }

        fn run(piece: usize, _: Option<Instant>, _: &dyn Fn() -> bool) -> usize {
            crate::sys::sync::yield_now();
            piece
        }

        fn is_timed(_: &usize) -> bool {
            false
        }

        fn finish_piece(&mut self, done: usize) {
            self.done.push(done);
        }

        fn runnable(&self) -> usize {
            self.left
        }

        fn pop_ready(&mut self) -> Option<Result<usize>> {
            self.done.pop().map(Ok)
        }

        fn has_ready(&self) -> bool {
            !self.done.is_empty()
        }

        fn close(&mut self) {}

        fn clear(&mut self) {
            self.left = 0;
            self.done.clear();
        }

        fn max_workers(&self) -> usize {
            2
        }
    }

    /// A group with two workers, each taking its turns in a thread.
    fn group(pieces: usize) -> (Arc<TaskGroup<Pieces>>, [shuttle::thread::JoinHandle<()>; 2]) {
        let job = Pieces {
            left: pieces,
            done: Vec::new(),
        };
        let group = TaskGroup::new("model", job, (0, 0), None);
        {
            let mut state = lock(&group.state);
            state.stage = Stage::Workers;
            (state.max_workers, state.fast_workers, state.workers) = (2, Some(2), 2);
        }
        let worker = || {
            let group = group.clone();
            shuttle::thread::spawn(move || while group.run_once() {})
        };
        let workers = [worker(), worker()];
        (group, workers)
    }

    fn all_come(pieces: usize, next: impl Fn(&TaskGroup<Pieces>) -> Option<Result<usize>>) {
        let (group, workers) = group(pieces);
        let mut seen: Vec<usize> = std::iter::from_fn(|| next(&group)).flatten().collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..pieces));
        workers.into_iter().for_each(|w| w.join().unwrap());
    }

    fn by_future(group: &TaskGroup<Pieces>) -> Option<Result<usize>> {
        shuttle::future::block_on(poll_fn(|cx| group.poll(cx)))
    }

    #[test]
    fn a_future_sees_every_piece_and_the_end() {
        shuttle::check_random(|| all_come(3, by_future), SCHEDULES);
        shuttle::check_pct(|| all_come(3, by_future), SCHEDULES, 3);
    }

    #[test]
    fn a_thread_sees_every_piece_and_the_end() {
        shuttle::check_random(|| all_come(3, TaskGroup::next), SCHEDULES);
        shuttle::check_pct(|| all_come(3, TaskGroup::next), SCHEDULES, 3);
    }

    fn cancelled(next: impl Fn(&TaskGroup<Pieces>) -> Option<Result<usize>>) {
        let (group, workers) = group(2);
        let canceller = group.clone();
        let cancels = shuttle::thread::spawn(move || canceller.cancel());
        // Returns the pieces that came first, one error if the cancel was early enough, and the
        // end.
        while next(&group).is_some() {}
        cancels.join().unwrap();
        workers.into_iter().for_each(|w| w.join().unwrap());
        assert!(group.is_over());
    }

    #[test]
    fn who_waits_is_told_that_it_was_cancelled() {
        shuttle::check_random(|| cancelled(by_future), SCHEDULES);
        shuttle::check_random(|| cancelled(TaskGroup::next), SCHEDULES);
        shuttle::check_pct(|| cancelled(by_future), SCHEDULES, 3);
    }
}
