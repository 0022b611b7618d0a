//! The local engine. One thread submits to it and reaps it, without an owner and without a handoff.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backend::{Backend, Choice, choose};
use super::class::Class;
use super::completion::{Completion, Ticket};
use super::completion_queue::CompletionQueue;
use super::completion_target::CompletionTarget;
use super::core::Core;
use super::features::Feature;
use super::file_set::FileSet;
use super::options::Options;
use super::pools::Pools;
use super::request::Request;
use super::ring::{Returned, Ring, WaitFor};
use super::submit::{Submit, begin};
use super::wait::{Wait, Waiting};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::support::Support;
use crate::op::{Op, Route};
use crate::policy::cost::Costs;
use crate::policy::stats::{Count, Stats};
use crate::read::path::ReadPath;
use crate::read::start::CallerResult;
use crate::sys::eventfd::notify;

/// An engine that its own thread drives, for thread-per-core servers, batches and benchmarks.
///
/// It has the same operations and the same contract as [`Engine`](super::Engine), but is `!Send`.
/// Completions are delivered only in [`reap`](LocalEngine::reap), so a thread with operations in
/// flight must call it.
///
/// Dropping the engine asks the kernel to cancel all operations in flight, and waits up to a second
/// for them. Memory of an operation that a hung device still holds after that is leaked, because
/// the kernel may write to it.
///
/// ```
/// use nowait::engine::{LocalEngine, Wait};
/// use nowait::op::{Op, Read};
/// let mut engine = LocalEngine::new()?;
/// let file = nowait::Handle::new(std::fs::File::open("Cargo.toml")?)?;
/// let mut ops: Vec<Op> = (0..4)
///     .map(|i| Read::new(&file, Box::new(vec![0; 16]), 16 * i).into())
///     .collect();
/// let taken = engine.submit_batch(&mut ops);
/// let mut done = Vec::new();
/// engine.reap(&mut done, Wait::For(taken))?;
/// assert!(done.iter().all(|c| matches!(c.result, Ok(16))));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct LocalEngine {
    core: Arc<Core>,
    choice: Choice,
    /// `None` after a drop in a forked child, or with the `Threads` backend.
    ring: Option<Ring>,
    pools: Pools,
    completions: Arc<CompletionQueue>,
    /// Completions that are not yet reaped.
    ready: VecDeque<Completion>,
    /// The number of operations that workers have.
    away: usize,
    ticket: u64,
    event_registered: bool,
    /// Completions of a ring belong to the thread that submitted them: the engine is not `Send`.
    here: PhantomData<*const ()>,
}

impl std::fmt::Debug for LocalEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalEngine")
            .field("backend", &self.choice.backend)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Makes an engine that the calling thread drives.
    ///
    /// # Errors
    /// The same errors as [`build`](Options::build).
    pub fn build_local(&self) -> Result<LocalEngine> {
        LocalEngine::with(self)
    }
}

impl LocalEngine {
    /// Makes an engine with the default [`Options`], driven by the calling thread.
    ///
    /// # Errors
    /// The same errors as [`Options::build`].
    pub fn new() -> Result<LocalEngine> {
        Options::new().build_local()
    }

    pub(super) fn with(options: &Options) -> Result<LocalEngine> {
        options.check()?;
        let core = Arc::new(Core::new(options));
        let pools = Pools::new(&core, options);
        let (made, choice) = choose(options.backend, options.ring.required(), || {
            Ring::new(&core, options.depth, &options.ring)
        })?;
        let (mut ring, features) = made.unzip();
        core.set_features(features);
        pools.start(options, choice.backend)?;
        let completions = Arc::new(CompletionQueue::default());
        if let Some(ring) = &mut ring {
            ring.set_delivers_signals();
            completions.wake_ring(ring.waker());
        }
        Ok(LocalEngine {
            core,
            choice,
            ring,
            pools,
            completions,
            ready: VecDeque::new(),
            away: 0,
            ticket: 0,
            event_registered: false,
            here: PhantomData,
        })
    }

    /// The backend of this engine.
    pub fn backend(&self) -> Backend {
        self.choice.backend
    }

    /// The reason for the choice of the backend.
    pub fn why(&self) -> &str {
        &self.choice.why
    }

    /// The support for a feature of the ring. On an engine without a ring, each is refused with
    /// ENXIO, and [`why`](Self::why) has the reason.
    ///
    /// A feature that is refused is not used: the engine works without it.
    pub fn support(&self, feature: Feature) -> Support {
        self.core.support(feature)
    }

    /// Makes the engine's set of registered files, with room for `capacity` files (at most
    /// 1,048,576).
    ///
    /// # Errors
    /// `InvalidInput` if the capacity is zero or too large, or the engine has a set already;
    /// [`ErrorKind::Forked`] in a forked child.
    pub fn file_set(&mut self, capacity: usize) -> Result<FileSet> {
        let ring = self.ring.as_mut();
        let set = FileSet::new(capacity, None);
        self.core
            .file_set(set, |set| Some(ring?.register_files(set.table())))
    }

    /// The number of operations that may be in flight.
    pub fn depth(&self) -> usize {
        self.core.depth()
    }

    /// The number of operations that are in flight, or done and not yet reaped.
    pub fn in_flight(&self) -> usize {
        self.away + self.ready.len() + self.ring.as_ref().map_or(0, Ring::held)
    }

    /// The counters of this engine.
    pub fn stats(&self) -> Stats {
        self.core.policy.counters.snapshot()
    }

    /// The costs of a hit, a miss and a handoff, as observed by this engine.
    pub fn costs(&self) -> Costs {
        self.core.policy.costs()
    }

    /// Submits one operation. When this returns, the operation is complete, or the kernel or a
    /// worker has it.
    pub fn submit(&mut self, op: Op) -> Submit {
        if let Err(error) = self.core.check_process(op.name()) {
            return Submit::Done(Completion::failed(error, op));
        }
        let begun = begin(&self.read_path(false), op);
        match begun {
            CallerResult::Done(done) => Submit::Done(done),
            CallerResult::Rest(op) if self.in_flight() < self.depth() => {
                let ticket = self.queue(op);
                self.flush();
                self.tell();
                Submit::Queued(ticket)
            }
            CallerResult::Rest(mut op) => {
                self.core.policy.counters.count(Count::Full);
                op.restart();
                Submit::Full(op)
            }
        }
    }

    /// Submits operations until the engine is full, with one system call, and returns how many it
    /// took. Operations that were not taken stay in `ops`. Each operation that was taken is
    /// returned by [`reap`](LocalEngine::reap), including those done immediately. In a forked child
    /// the engine takes none.
    pub fn submit_batch(&mut self, ops: &mut Vec<Op>) -> usize {
        if self.core.check_process("submit").is_err() {
            return 0;
        }
        let taken = self.take(ops);
        self.flush();
        self.tell();
        taken
    }

    /// Calls [`submit_batch`](LocalEngine::submit_batch) and then [`reap`](LocalEngine::reap), with
    /// one system call for both if possible. Returns the number of completions reaped.
    ///
    /// One system call is possible if `wait` is [`Wait::For`], workers have no operation of this
    /// engine, no operation has a deadline, and the page cache cannot serve any of the submitted
    /// operations. For a read that the page cache may serve, a call that waits cannot tell what was
    /// there before the wait.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`] in a forked child.
    ///
    /// ```
    /// use nowait::engine::{LocalEngine, Wait};
    /// use nowait::op::{Nop, Op};
    /// let mut engine = LocalEngine::new()?;
    /// let (mut ops, mut done) = (vec![Op::from(Nop), Op::from(Nop)], Vec::new());
    /// assert_eq!(engine.submit_and_wait(&mut ops, &mut done, Wait::For(2))?, 2);
    /// assert!(ops.is_empty());
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn submit_and_wait(
        &mut self,
        ops: &mut Vec<Op>,
        out: &mut Vec<Completion>,
        wait: Wait,
    ) -> Result<usize> {
        self.core.check_process("submit")?;
        self.take(ops);
        let by_ring_alone =
            self.away == 0 && self.ready.is_empty() && self.core.deadlines.next().is_none();
        match wait {
            Wait::For(want) if by_ring_alone && want > 0 => {
                self.with_ring(|ring, mut out| ring.flush_and_wait(want, &mut out));
            }
            _ => self.flush(),
        }
        self.reap(out, wait)
    }

    fn read_path(&self, batch: bool) -> ReadPath<'_, impl Fn() -> usize, impl Fn(Op)> {
        ReadPath {
            policy: &self.core.policy,
            in_flight: || self.in_flight(),
            read_ahead: |op| self.read_ahead(op),
            batch,
        }
    }

    /// Takes operations until the engine is full. `flush` submits them to the kernel.
    #[inline]
    fn take(&mut self, ops: &mut Vec<Op>) -> usize {
        let room = self.depth().saturating_sub(self.in_flight());
        let taken = room.min(ops.len());
        if taken < ops.len() {
            self.core.policy.counters.count(Count::Full);
        }
        let batch = self.ring.is_some();
        for op in ops.drain(..taken) {
            let begun = begin(&self.read_path(batch), op);
            match begun {
                CallerResult::Done(done) => self.ready.push_back(done),
                CallerResult::Rest(op) => {
                    self.queue(op);
                }
            }
        }
        taken
    }

    /// Makes the event descriptor readable if completions are ready that neither the ring nor a
    /// worker has signalled.
    fn tell(&self) {
        let news = self.event_registered && !self.ready.is_empty();
        if let (true, Ok(event)) = (news, self.completions.event()) {
            notify(event);
        }
    }

    #[inline(always)]
    fn queue(&mut self, op: Op) -> Ticket {
        self.ticket += 1;
        let ticket = Ticket(self.ticket);
        let deadline = op.get_deadline();
        if let Some(deadline) = deadline {
            self.core.deadlines.add(deadline, ticket);
        }
        let route = op.body.progress.route;
        let request = Request::new(op, ticket, CompletionTarget::Local);
        if let Some(why) = self.core.refuses(&request.op.body.kind) {
            let (request, outcome) = request.stop(why);
            self.ready
                .push_back(request.complete(&self.core, outcome, false));
            return ticket;
        }
        self.core.policy.counters.count(Count::Handoffs);
        match &mut self.ring {
            Some(ring) if route == Route::Ring && ring.supports(&request.op.body.kind) => {
                if let Some(request) = ring.push(request) {
                    self.hand_over(request);
                }
            }
            _ => self.hand_over(request),
        }
        if let Some(deadline) = deadline {
            self.core.deadlines.arm(deadline, ticket);
        }
        ticket
    }

    /// Queues a readahead for a worker.
    fn read_ahead(&self, op: Op) {
        if let Some(request) = Request::ahead(&self.core, op) {
            self.pools.push(request);
        }
    }

    fn hand_over(&mut self, mut request: Request) {
        request.target = CompletionTarget::Queue(self.completions.clone(), Class::File);
        self.away += 1;
        self.pools.push(request);
    }

    /// Runs a closure on the ring and collects the operations that leave it.
    fn with_ring(&mut self, act: impl FnOnce(&mut Ring, &mut dyn FnMut(Returned))) {
        let Some(ring) = &mut self.ring else { return };
        let (ready, core) = (&mut self.ready, &self.core);
        let mut refused = Vec::new();
        act(ring, &mut |out| match out {
            Returned::Done(request, outcome) => {
                ready.push_back(request.complete(core, outcome, false));
            }
            Returned::Worker(request) => refused.push(request),
        });
        for request in refused {
            self.hand_over(request);
        }
    }

    fn flush(&mut self) {
        self.with_ring(|ring, mut out| ring.flush(&mut out));
    }

    /// Moves completions into `out`, and returns how many.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`] in a forked child.
    pub fn reap(&mut self, out: &mut Vec<Completion>, wait: Wait) -> Result<usize> {
        self.reap_at_most(usize::MAX, out, wait)
    }

    /// Like [`reap`](LocalEngine::reap), for at most `most` completions. The others still count
    /// as in flight. The wait is over once there are `most`.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`] in a forked child.
    pub fn reap_at_most(
        &mut self,
        most: usize,
        out: &mut Vec<Completion>,
        wait: Wait,
    ) -> Result<usize> {
        self.core.check_process("reap")?;
        let waiting = Waiting::begin(wait);
        let before = out.len();
        let mut slept = false;
        loop {
            self.expire();
            self.collect(out, before.saturating_add(most));
            let got = out.len() - before;
            let rest = waiting.rest(got, self.in_flight());
            match rest.filter(|_| got < most) {
                Some((want, until)) => {
                    let want = want.min(most - got);
                    self.sleep(want, until, matches!(wait, Wait::Batch { .. }));
                }
                // A wait with a zero timeout delivers deferred completions.
                None if wait == Wait::No && got == 0 && !slept => {
                    self.sleep(0, Some(Instant::now()), false);
                }
                None => {
                    self.tell();
                    return Ok(got);
                }
            }
            slept = true;
        }
    }

    /// Takes the completions that are ready, without waiting, until `out` has `full` of them.
    fn collect(&mut self, out: &mut Vec<Completion>, full: usize) {
        let room = full.saturating_sub(out.len());
        if room < self.ready.len() {
            return out.extend(self.ready.drain(..room));
        }
        if let (true, Ok(event)) = (self.event_registered, self.completions.event()) {
            let _ = rustix::io::read(event, &mut [0u8; 8]);
        }
        // This comes before the ring's completions: it also reads the descriptor, which may be the
        // only notification of a completion of the ring.
        if self.away > 0 {
            self.away -= self.completions.take(out);
        }
        if let (true, Some(ring)) = (self.event_registered, &mut self.ring) {
            // The kernel signals the descriptor for a deferred completion only if no other was
            // pending. No completion may be left undelivered after the descriptor has been read.
            ring.deliver();
        }
        out.extend(self.ready.drain(..));
        while let Some(returned) = self.ring.as_mut().and_then(Ring::next_returned) {
            match returned {
                Returned::Done(request, outcome) => {
                    out.push(request.complete(&self.core, outcome, false));
                }
                Returned::Worker(request) => self.hand_over(request),
            }
        }
        self.ready.extend(out.drain(full.min(out.len())..));
        // The next part of a short read is submitted immediately.
        self.flush();
    }

    /// Waits for completions until `until`, or until the next deadline. A batch waits for `want`
    /// completions until `until`, and for one completion after that.
    fn sleep(&mut self, want: usize, until: Option<Instant>, batch: bool) {
        // A worker may have completed an operation since `collect`, which has taken the notification of that.
        if !self.ready.is_empty() || (self.away > 0 && self.completions.has_news()) {
            return;
        }
        let due = self.core.deadlines.next();
        let soonest = match (until, due) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        // Each worker's completion ends the sleep, through the ring's eventfd.
        let want = if self.away > 0 { want.min(1) } else { want };
        let there = self.ring.as_mut().map_or(0, Ring::ready);
        if there > 0 && there >= want {
            return;
        }
        match &mut self.ring {
            // A polling ring does not notice the workers' eventfd, so each call polls only once.
            Some(ring) if ring.must_poll() && self.away > 0 => {
                ring.wait(WaitFor::count(0), Some(Duration::ZERO));
            }
            Some(ring) => match until {
                Some(until) if batch && self.away == 0 && ring.waits_for_batches() => {
                    ring.wait(WaitFor::batch(want, left(until)), due.map(left));
                }
                _ => ring.wait(WaitFor::count(want), soonest.map(left)),
            },
            None => self.completions.wait(soonest),
        }
    }

    /// Stops operations whose deadline has passed.
    fn expire(&mut self) {
        while let Some(ticket) = self.core.deadlines.expired() {
            self.stop(ticket, ErrorKind::DeadlinePassed);
        }
    }

    /// Asks the engine to stop an operation, like [`Engine::cancel`](super::Engine::cancel).
    pub fn cancel(&mut self, ticket: Ticket) {
        self.stop(ticket, ErrorKind::Cancelled);
    }

    fn stop(&mut self, ticket: Ticket, why: ErrorKind) {
        // In a forked child the memory of the ring is not mapped.
        if self.core.process.is_here() && !self.pools.cancel(ticket, why) {
            self.with_ring(|ring, mut out| {
                if ring.cancel(ticket, why) {
                    ring.flush(&mut out);
                }
            });
        }
    }

    /// An eventfd that is readable while there may be something to reap, for poll, epoll and event
    /// loops. The program leaves reading it to `reap`.
    ///
    /// # Errors
    /// The errno of eventfd(2), such as EMFILE, at the first call; [`ErrorKind::Unsupported`] for a
    /// polled engine, whose completions are found only by reaping; [`ErrorKind::Forked`] in a
    /// forked child.
    pub fn event_fd(&mut self) -> Result<BorrowedFd<'_>> {
        self.core.check_process("event_fd")?;
        if self.core.policy.polled {
            // A polled ring signals nothing: its completions are found only by reaping.
            return Err(Error::new(
                "event_fd (of a polled engine)",
                ErrorKind::Unsupported,
            ));
        }
        let event = self.completions.event()?;
        if !self.event_registered {
            if let Some(ring) = &self.ring {
                ring.register_event(event.as_fd())
                    .map_err(|e| Error::io("register an eventfd", &e))?;
            }
            self.event_registered = true;
            if self.in_flight() > 0 {
                // Operations that are done by now have not signalled the eventfd.
                notify(event);
            }
        }
        Ok(event.as_fd())
    }
}

impl Drop for LocalEngine {
    fn drop(&mut self) {
        if self.core.process.is_here() {
            self.completions.close();
        } else if let Some(ring) = self.ring.take() {
            ring.forget();
        }
    }
}
