//! The local engine: one thread submits to it and reaps it. No owner, no handoff.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backend::{Backend, Choice, choose, no_ring};
use super::chain::{Chain, RefusedChain};
use super::class::Class;
use super::completion_queue::CompletionQueue;
use super::core::Core;
use super::features::Features;
use super::file_set::FileSet;
use super::options::Options;
use super::pools::Pools;
use super::reply::Reply;
use super::request::Request;
use super::ring::Ring;
use super::ring::out::Out;
use super::ring::until::Until;
use super::submit::{Begun, Submit, begin};
use super::wait::{Wait, Waiting};
use crate::completion::{Completion, Ticket};
use crate::cost::Costs;
use crate::error::{Error, ErrorKind, Result};
use crate::op::{Kind, Op};
use crate::read::{Rest, Route};
use crate::stats::{Count, Stats};
use crate::sys::eventfd::notify;

/// An engine that its own thread drives: for thread-per-core servers, batches and benchmarks.
///
/// The same operations and the same contract as [`Engine`](super::Engine), `!Send`. Completions
/// are delivered in [`reap`](LocalEngine::reap) and nowhere else, so a thread that has operations
/// in flight must come back to it.
///
/// Dropping it asks the kernel to stop what is in flight and waits for that; what a hung device
/// still holds after a second is never freed, rather than freed under the kernel's hands.
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
    /// `None` after a drop in a forked child, or on threads.
    ring: Option<Ring>,
    pools: Pools,
    completions: Arc<CompletionQueue>,
    /// Done, and not yet reaped.
    ready: VecDeque<Completion>,
    /// At workers.
    away: usize,
    ticket: u64,
    event_registered: bool,
    /// A ring's completions belong to the thread that submitted: not `Send`.
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
    /// As [`build`](Options::build).
    pub fn build_local(&self) -> Result<LocalEngine> {
        LocalEngine::with(self)
    }
}

impl LocalEngine {
    /// An engine with the default [`Options`], driven by this thread.
    ///
    /// # Errors
    /// If neither a ring nor a thread can be had.
    pub fn new() -> Result<LocalEngine> {
        Options::new().build_local()
    }

    pub(super) fn with(options: &Options) -> Result<LocalEngine> {
        options.check()?;
        let core = Arc::new(Core::new(options));
        let pools = Pools::new(&core, options);
        let (made, choice) = choose(options.backend, options.ring.insisted(), || {
            Ring::new(&core, options.depth, &options.ring)
        })?;
        let (mut ring, features) = made.unzip();
        core.note_features(features, &choice);
        if choice.backend == Backend::Threads {
            pools.start()?;
        }
        let completions = Arc::new(CompletionQueue::default());
        if let Some(ring) = &mut ring {
            ring.takes_signals();
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

    /// Which backend carries operations.
    pub fn backend(&self) -> Backend {
        self.choice.backend
    }

    /// Why it is that one.
    pub fn why(&self) -> &str {
        &self.choice.why
    }

    /// What of a ring's features it has, and why not the rest.
    pub fn features(&self) -> Features {
        self.core.features()
    }

    /// Makes the engine's set of registered files, with room for so many (at most 1,048,576).
    ///
    /// # Errors
    /// `InvalidInput` for no room, too much of it, or a second set; [`ErrorKind::Forked`] in a
    /// forked child.
    pub fn file_set(&mut self, capacity: usize) -> Result<FileSet> {
        let ring = &mut self.ring;
        self.core
            .file_set(FileSet::new(capacity, None), |set| match ring {
                Some(ring) => ring.register_files(set.table()),
                None => Err(no_ring()),
            })
    }

    /// How many operations may be in flight at once.
    pub fn depth(&self) -> usize {
        self.core.depth()
    }

    /// How many operations are in flight, or done and not yet reaped.
    pub fn in_flight(&self) -> usize {
        self.away + self.ready.len() + self.ring.as_ref().map_or(0, Ring::held)
    }

    /// What this engine has done so far.
    pub fn stats(&self) -> Stats {
        self.core.policy.counters.snapshot()
    }

    /// What a hit, a miss and a handoff cost, as this engine has observed them.
    pub fn costs(&self) -> Costs {
        self.core.policy.costs()
    }

    /// Submits one operation; it has reached the kernel (or is done) when this returns.
    pub fn submit(&mut self, mut op: Op) -> Submit {
        if let Err(error) = self.core.check_process(op.name()) {
            return Submit::Done(Completion::failed(error, op));
        }
        let (begun, ahead) = begin(&self.core.policy, &mut op, false, || self.in_flight() == 0);
        ahead.into_iter().for_each(|ahead| self.read_ahead(ahead));
        match begun {
            Begun::Done(result, provenance) => Submit::Done(Completion {
                result,
                op,
                provenance,
                ticket: None,
            }),
            Begun::Rest(rest) if self.in_flight() < self.depth() => {
                let ticket = self.queue(op, rest);
                self.flush();
                self.tell();
                Submit::Queued(ticket)
            }
            Begun::Rest(_) => {
                self.core.policy.counters.count(Count::Full);
                Submit::Full(op)
            }
        }
    }

    /// Submits operations until the engine is full, with one system call; what it did not take
    /// stays in `ops`. Returns how many were taken; each comes out of
    /// [`reap`](LocalEngine::reap), also one that was done at once. In a forked child it takes none.
    pub fn submit_batch(&mut self, ops: &mut Vec<Op>) -> usize {
        if self.core.check_process("submit").is_err() {
            return 0;
        }
        let taken = self.take(ops);
        self.flush();
        self.tell();
        taken
    }

    /// As [`submit_batch`](LocalEngine::submit_batch) and then [`reap`](LocalEngine::reap), with one
    /// system call for both where that can be: `wait` is [`Wait::For`], nothing is at workers or
    /// has a deadline, and nothing of what is submitted may be served by the page cache (of a call
    /// that waits nobody could say what was there before it waited). Returns how many were reaped.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`] in a forked child.
    ///
    /// ```
    /// use nowait::engine::{LocalEngine, Wait};
    /// use nowait::op::{Nop, Op};
    /// let mut engine = LocalEngine::new()?;
    /// let (mut ops, mut done) = (vec![Op::from(Nop), Op::from(Nop)], Vec::new());
    /// assert_eq!(engine.submit_and_reap(&mut ops, &mut done, Wait::For(2))?, 2);
    /// assert!(ops.is_empty());
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn submit_and_reap(
        &mut self,
        ops: &mut Vec<Op>,
        out: &mut Vec<Completion>,
        wait: Wait,
    ) -> Result<usize> {
        self.core.check_process("submit")?;
        self.take(ops);
        let lone = self.away == 0 && self.ready.is_empty() && self.core.deadlines.next().is_none();
        match wait {
            Wait::For(want) if lone && want > 0 => {
                self.with_ring(|ring, mut out| ring.flush_and_wait(want, &mut out));
            }
            _ => self.flush(),
        }
        self.reap(out, wait)
    }

    /// Takes operations until the engine is full; `flush` gives them to the kernel.
    #[inline]
    fn take(&mut self, ops: &mut Vec<Op>) -> usize {
        let room = self.depth().saturating_sub(self.in_flight());
        let taken = room.min(ops.len());
        if taken < ops.len() {
            self.core.policy.counters.count(Count::Full);
        }
        let batch = self.ring.is_some();
        let mut aheads = Vec::new();
        for mut op in ops.drain(..taken) {
            let (begun, ahead) = begin(&self.core.policy, &mut op, batch, || self.in_flight() == 0);
            aheads.extend(ahead);
            match begun {
                Begun::Done(result, provenance) => {
                    self.ready.push_back(Completion {
                        result,
                        op,
                        provenance,
                        ticket: None,
                    });
                }
                Begun::Rest(rest) => {
                    self.queue(op, rest);
                }
            }
        }
        aheads.into_iter().for_each(|ahead| self.read_ahead(ahead));
        taken
    }

    /// What is ready without a ring or a worker having told of it makes the descriptor readable too.
    fn tell(&self) {
        let news = self.event_registered && !self.ready.is_empty();
        if let (true, Ok(event)) = (news, self.completions.event()) {
            notify(event);
        }
    }

    /// Submits a chain, whole or not at all, with one system call; each of its operations comes out
    /// of [`reap`](LocalEngine::reap). Returns their tickets, in order.
    ///
    /// # Errors
    /// The chain, with the reason: see [`RefusedChain`].
    pub fn submit_chain(&mut self, mut chain: Chain) -> Result<Vec<Ticket>, RefusedChain> {
        let refused = self
            .core
            .refuses_chain(&mut chain, self.ring.as_ref().map(Ring::supported));
        if let Some(error) = refused {
            return Err(RefusedChain { error, chain });
        }
        if self.in_flight() + chain.len() > self.depth() {
            self.core.policy.counters.count(Count::Full);
            let error = Error::new("submit_chain", ErrorKind::Full);
            return Err(RefusedChain { error, chain });
        }
        let requests: Vec<Request> = chain
            .0
            .into_iter()
            .map(|op| {
                self.ticket += 1;
                Request::new(op, None, Ticket(self.ticket), Reply::Local).0
            })
            .collect();
        let deadlines: Vec<_> = requests.iter().map(Request::due).collect();
        let tickets = requests.iter().map(|request| request.ticket).collect();
        let due = deadlines.iter().flatten();
        due.clone()
            .for_each(|(at, ticket)| self.core.deadlines.add(*at, *ticket));
        self.core
            .policy
            .counters
            .add(Count::Handoffs, requests.len() as u64);
        // A ring that can't be entered any more gives them back.
        let back = match &mut self.ring {
            Some(ring) => ring.push_chain(requests),
            None => Some(requests),
        };
        for request in back.into_iter().flatten() {
            self.ready
                .push_back(request.stop(&self.core, ErrorKind::NeedsRing).1);
        }
        self.flush();
        self.tell();
        due.for_each(|(at, ticket)| self.core.deadlines.arm(*at, *ticket));
        Ok(tickets)
    }

    #[inline]
    fn queue(&mut self, op: Op, rest: Option<Rest>) -> Ticket {
        self.ticket += 1;
        let ticket = Ticket(self.ticket);
        let deadline = op.get_deadline();
        if let Some(deadline) = deadline {
            self.core.deadlines.add(deadline, ticket);
        }
        let (mut request, route) = Request::new(op, rest, ticket, Reply::Local);
        let ring = self.ring.as_ref();
        let ring_takes = |kind: &Kind| ring.is_some_and(|r| r.takes(kind));
        if let Some(why) = self.core.refuses(&mut request.op.kind, ring_takes) {
            let (_, completion) = request.stop(&self.core, why);
            self.ready.push_back(completion);
            return ticket;
        }
        self.core.policy.counters.count(Count::Handoffs);
        match &mut self.ring {
            Some(ring) if route == Route::Ring && ring.takes(&request.op.kind) => {
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

    /// Has a worker read ahead.
    fn read_ahead(&mut self, op: Op) {
        self.ticket += 1;
        if let Some(request) = Request::ahead(&self.core, op, Ticket(self.ticket)) {
            self.pools.push(request);
        }
    }

    fn hand_over(&mut self, mut request: Request) {
        request.reply = Reply::Queue(self.completions.clone(), Class::default());
        self.away += 1;
        self.pools.push(request);
    }

    /// Runs something on the ring and takes what comes out of it.
    fn with_ring(&mut self, act: impl FnOnce(&mut Ring, &mut dyn FnMut(Out))) {
        let Some(ring) = &mut self.ring else { return };
        let ready = &mut self.ready;
        let mut refused = Vec::new();
        act(ring, &mut |out| match out {
            Out::Done(_, completion) => ready.push_back(completion),
            Out::Worker(request) => refused.push(request),
        });
        for request in refused {
            self.hand_over(request);
        }
    }

    fn flush(&mut self) {
        self.with_ring(|ring, mut out| ring.flush(&mut out));
    }

    /// Collects completions into `out`; returns how many.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`] in a forked child.
    pub fn reap(&mut self, out: &mut Vec<Completion>, wait: Wait) -> Result<usize> {
        self.core.check_process("reap")?;
        let waiting = Waiting::begin(wait);
        let before = out.len();
        let mut slept = false;
        loop {
            self.expire();
            self.collect(out);
            let got = out.len() - before;
            match waiting.rest(got, self.in_flight()) {
                Some((want, until)) => self.sleep(want, until, matches!(wait, Wait::Batch { .. })),
                // Deferred completions are delivered by a wait of no time.
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

    /// Takes what is done, without waiting.
    fn collect(&mut self, out: &mut Vec<Completion>) {
        if let (true, Ok(event)) = (self.event_registered, self.completions.event()) {
            let _ = rustix::io::read(event, &mut [0u8; 8]);
        }
        // Before the ring's: this too reads the descriptor, which may be the ring's only word of a
        // completion.
        if self.away > 0 {
            self.away -= self.completions.take(out);
        }
        if let (true, Some(ring)) = (self.event_registered, &mut self.ring) {
            // A deferred completion makes the descriptor readable only if none was deferred
            // before it: none may be left over once it has been read.
            ring.deliver();
        }
        out.extend(self.ready.drain(..));
        if let Some(ring) = &mut self.ring {
            let mut refused = Vec::new();
            ring.drain(&mut |o| match o {
                Out::Done(_, completion) => out.push(completion),
                Out::Worker(request) => refused.push(request),
            });
            for request in refused {
                self.hand_over(request);
            }
            // A short read's next piece goes to the kernel at once.
            self.flush();
        }
    }

    /// Waits for completions until then, or until the next deadline is due; for a batch, not until
    /// then but from then on for one.
    fn sleep(&mut self, want: usize, until: Option<Instant>, batch: bool) {
        if !self.ready.is_empty() {
            return;
        }
        let due = self.core.deadlines.next();
        let soonest = match (until, due) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        // Workers end the sleep one by one, through the ring's eventfd.
        let want = if self.away > 0 { want.min(1) } else { want };
        let there = self.ring.as_mut().map_or(0, Ring::ready);
        if there > 0 && there >= want {
            return;
        }
        match &mut self.ring {
            // Nothing else is polled for while this polls its device: each look is a short one.
            Some(ring) if ring.spins() && self.away > 0 => {
                ring.wait(Until::count(0), Some(Duration::ZERO));
            }
            Some(ring) => match until {
                Some(until) if batch && self.away == 0 && ring.waits_for_batches() => {
                    ring.wait(Until::batch(want, left(until)), due.map(left));
                }
                _ => ring.wait(Until::count(want), soonest.map(left)),
            },
            None => self.completions.wait(soonest),
        }
    }

    /// Stops what is past its deadline.
    fn expire(&mut self) {
        while let Some(ticket) = self.core.deadlines.expired() {
            self.stop(ticket, ErrorKind::DeadlinePassed);
        }
    }

    /// Asks that an operation be stopped, as [`Engine::cancel`](super::Engine::cancel) does.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.stop(ticket, ErrorKind::Cancelled);
    }

    fn stop(&mut self, ticket: Ticket, why: ErrorKind) {
        // In a forked child the ring's memory is not even mapped.
        if self.core.process.is_here() && !self.pools.cancel(ticket, why) {
            self.with_ring(|ring, mut out| {
                if ring.cancel(ticket, why) {
                    ring.flush(&mut out);
                }
            });
        }
    }

    /// A descriptor (an eventfd) that is readable while there may be something to reap: for poll,
    /// epoll and event loops. Reading it is `reap`'s business.
    ///
    /// # Errors
    /// EMFILE and the like, at the first call; [`ErrorKind::Unsupported`] of a polled engine, whose
    /// completions are found by reaping alone; [`ErrorKind::Forked`] in a forked child.
    pub fn event_fd(&mut self) -> Result<BorrowedFd<'_>> {
        self.core.check_process("event_fd")?;
        if self.core.policy.polled {
            // Nothing happens on its own that could be told.
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
                // What is done by now has not told it.
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
