//! A parcel: one operation on its way through an engine, and where its completion is to go.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use once_cell::race::OnceBox;
use rustix::event::EventfdFlags;

use crate::completion::{Completion, Origin, Provenance, ServedBy, Ticket};
use crate::engine::Core;
use crate::error::{Error, ErrorKind};
use crate::op::{Kind, Op, Step};
use crate::read::Rest;
use crate::stats::{Count, ns_since, sometimes_now};
use crate::sys::Errno;
use crate::sys::process::Owner;

/// One operation on its way.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) op: Op,
    pub(crate) ticket: Ticket,
    pub(crate) reply: Reply,
    /// What the caller's own try brought already.
    pub(crate) provenance: Provenance,
    /// The caller tried, and the page cache did not have the next byte.
    pub(crate) missed: bool,
    /// When it was queued, for one in 64.
    pub(crate) queued: Option<Instant>,
    /// Somebody wants it stopped, and this is why.
    pub(crate) stopped: Option<ErrorKind>,
}

/// Which part of an engine is to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The ring, where there is one.
    Ring,
    /// A worker in any case: a large copy.
    Worker,
}

/// When a result was there, and whether that tells where its bytes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// When the submission returned: nothing had to be waited for.
    AtOnce,
    /// Later: the submission, which looks into the page cache, did not find it all.
    Later,
    /// Somebody else looked into the page cache, and did not say what was there: a worker, a
    /// thread of the kernel's.
    Untold,
}

/// Where a completion goes.
#[derive(Debug)]
pub(crate) enum Reply {
    /// To the thread that drives the engine itself.
    Local,
    /// To a future.
    Flight(Arc<Flight>),
    /// To whoever reaps.
    Mailbox(Arc<Mailbox>),
    /// To nobody: a readahead.
    Ahead,
}

impl Reply {
    /// Hands the completion over. Runs on the owner or on a worker.
    pub(crate) fn deliver(self, core: &Core, completion: Completion) {
        match self {
            Reply::Local => {}
            Reply::Ahead => core.aheads.leave(1),
            Reply::Flight(flight) => {
                core.gate.leave(1);
                flight.land(completion);
            }
            // It counts as in flight until it is reaped: unreaped completions are memory too.
            Reply::Mailbox(mailbox) => mailbox.push(completion),
        }
    }
}

impl Parcel {
    /// A parcel with what the caller's own try left to do, and who is to do it.
    #[inline]
    pub(crate) fn new(op: Op, rest: Option<Rest>, ticket: Ticket, reply: Reply) -> (Parcel, Route) {
        let (provenance, missed, route) = rest
            .map_or((Provenance::default(), false, Route::Ring), |r| {
                (r.provenance, r.missed, r.route)
            });
        let parcel = Parcel {
            op,
            ticket,
            reply,
            provenance,
            missed,
            queued: sometimes_now(),
            stopped: None,
        };
        (parcel, route)
    }

    /// Its deadline, if it has one.
    pub(crate) fn due(&self) -> Option<(Instant, Ticket)> {
        Some((self.op.get_deadline()?, self.ticket))
    }

    /// Notes where the `n` bytes of one kernel read came from.
    pub(crate) fn arrived(&mut self, n: usize, when: When) {
        let n = match &mut self.op.kind {
            Kind::Read(read) => read.brings(n),
            _ => n,
        };
        let (positional, handle) = match (&self.op.kind, self.op.kind.handle()) {
            (Kind::Read(read), Some(handle)) => (read.positional().is_some(), handle),
            (Kind::Readv(read), Some(handle)) => (read.positional().is_some(), handle),
            (Kind::ReadDirect(_), _) => return self.provenance.add(n, Origin::Unknown),
            _ => return,
        };
        let one_page = n <= crate::sys::process::page_size();
        let cache = handle.is_regular() && positional && !handle.is_direct();
        let origin = if handle.is_direct() {
            Origin::Device
        } else if when == When::AtOnce && cache && !self.missed && handle.nowait_read().works() {
            // Of a file that takes NOWAIT, what is there at once was there before. (After a miss
            // it would be a device that was done within the submission; other files some kernels
            // read at submission whether that waits or not.)
            Origin::Cache
        } else if one_page
            && cache
            && n > 0
            && (self.missed || (when != When::Untold && handle.nowait_read().works()))
        {
            Origin::Device
        } else {
            Origin::Unknown
        };
        if !self.missed && cache {
            match origin {
                Origin::Cache => handle.history().found(true),
                Origin::Device => handle.history().found(false),
                Origin::Unknown => {}
            }
        }
        self.provenance.add(n, origin);
    }

    /// Makes the completion, and counts it.
    #[inline]
    pub(crate) fn finish(
        mut self,
        core: &Core,
        result: Result<usize, Errno>,
        by: ServedBy,
    ) -> (Reply, Completion) {
        let counters = &core.counters;
        if let Some(deadline) = self.op.get_deadline() {
            core.deadlines.remove(deadline, self.ticket);
        }
        counters.count(match by {
            ServedBy::Ring => Count::Ring,
            ServedBy::Worker | ServedBy::Caller => Count::Workers,
        });
        if let Some(queued) = self.queued {
            let ns = ns_since(queued);
            counters.latency(ns);
            if !matches!(self.reply, Reply::Flight(_)) {
                // A future's way back, by a wake-up, is still before it.
                core.handed_off(self.provenance, ns);
            }
        }
        let result = match result {
            Ok(n) => {
                if self.op.kind.is_transfer() {
                    counters.add(Count::EngineBytes, n as u64);
                }
                Ok(n)
            }
            Err(errno) => {
                counters.count(Count::Errors);
                self.provenance = Provenance::default();
                Err(self.error(errno))
            }
        };
        self.provenance.served_by = by;
        let completion = Completion {
            result,
            held: self.op,
            provenance: self.provenance,
            ticket: Some(self.ticket),
        };
        (self.reply, completion)
    }

    /// The completion of a parcel that was stopped before anybody began it.
    pub(crate) fn stop(mut self, core: &Core, why: ErrorKind) -> (Reply, Completion) {
        self.stopped = Some(why);
        let result = match self.op.kind.settle(Err(Errno::CANCELED)) {
            // What its caller's part has written counts.
            Step::Done(result) => result,
            Step::Again => Err(Errno::CANCELED),
        };
        self.finish(core, result, ServedBy::Caller)
    }

    fn error(&self, errno: Errno) -> Error {
        let path = self.op.kind.handle().and_then(|h| h.shared_path());
        match (errno, self.stopped) {
            (Errno::CANCELED | Errno::INTR, Some(why)) => Error::new(self.op.name(), why),
            _ => Error::os(self.op.name(), errno),
        }
        .on(path)
    }
}

/// Where a future waits for its completion.
#[derive(Debug, Default)]
pub(crate) struct Flight(Mutex<FlightState>);

#[derive(Debug, Default)]
struct FlightState {
    landed: Option<Completion>,
    waker: Option<Waker>,
}

impl Flight {
    /// A flight whose future is waiting already.
    pub(crate) fn new(waker: &Waker) -> Flight {
        Flight(Mutex::new(FlightState {
            landed: None,
            waker: Some(waker.clone()),
        }))
    }

    fn land(&self, completion: Completion) {
        let waker = {
            let mut state = lock(&self.0);
            state.landed = Some(completion);
            state.waker.take()
        };
        if let Some(waker) = waker {
            wake(waker);
        }
    }

    /// In a forked child: what had landed before the fork. Takes no lock that the fork may have
    /// caught.
    pub(crate) fn landed_before_fork(&self) -> Option<Completion> {
        self.0.try_lock().ok()?.landed.take()
    }

    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Completion> {
        let mut state = lock(&self.0);
        match state.landed.take() {
            Some(completion) => Poll::Ready(completion),
            None => {
                match &mut state.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

/// Completions that wait to be reaped.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    done: Mutex<VecDeque<Completion>>,
    news: Condvar,
    /// Nobody will reap any more.
    closed: AtomicBool,
    /// Becomes readable when there is something to reap, once somebody has asked for it.
    event: OnceBox<OwnedFd>,
    /// Wakes a ring that its thread sleeps on.
    ring: OnceBox<Arc<OwnedFd>>,
}

impl Mailbox {
    pub(crate) fn push(&self, completion: Completion) {
        {
            // Under the lock, as in `take`: the descriptor is readable exactly while there is
            // something.
            let mut done = lock(&self.done);
            if self.closed.load(SeqCst) {
                return;
            }
            done.push_back(completion);
            if let Some(event) = self.event.get() {
                notify(event);
            }
        }
        self.news.notify_one();
        if let Some(ring) = self.ring.get() {
            notify(ring);
        }
    }

    /// From now on completions are dropped, so that each operation's memory is freed with it and not
    /// only with the last one's.
    pub(crate) fn close(&self) {
        let unreaped = {
            let mut done = lock(&self.done);
            self.closed.store(true, SeqCst);
            std::mem::take(&mut *done)
        };
        drop(unreaped);
    }

    /// Moves what is there to `out`; returns how many.
    pub(crate) fn take(&self, out: &mut Vec<Completion>) -> usize {
        let mut done = lock(&self.done);
        if let Some(event) = self.event.get() {
            let _ = rustix::io::read(event, &mut [0u8; 8]);
        }
        let n = done.len();
        out.extend(done.drain(..));
        n
    }

    /// Waits until there is something, or until then; may return early.
    pub(crate) fn wait(&self, until: Option<Instant>) {
        let done = lock(&self.done);
        if !done.is_empty() {
            return;
        }
        match until {
            None => drop(self.news.wait(done)),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                drop(self.news.wait_timeout(done, left));
            }
        }
    }

    /// Ends every wait, for them to look again.
    pub(crate) fn wake_all(&self) {
        let _done = lock(&self.done);
        self.news.notify_all();
    }

    /// The descriptor that becomes readable when there is something to reap.
    pub(crate) fn event(&self) -> crate::Result<&OwnedFd> {
        if self.event.get().is_none() {
            let fd = eventfd(EventfdFlags::NONBLOCK).map_err(|e| Error::os("eventfd", e))?;
            let _ = self.event.set(Box::new(fd));
        }
        let event = self.event.get().ok_or(Error::os("eventfd", Errno::IO))?;
        if !lock(&self.done).is_empty() {
            notify(event);
        }
        Ok(event)
    }

    /// From now on a push also wakes this ring.
    pub(crate) fn wake_ring(&self, ring: &Arc<OwnedFd>) {
        let _ = self.ring.set(Box::new(ring.clone()));
    }
}

/// A new eventfd(2). One that a ring reads must block: of a file with O_NONBLOCK some kernels'
/// rings report EAGAIN instead of waiting.
pub(crate) fn eventfd(flags: EventfdFlags) -> Result<OwnedFd, Errno> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | flags)
}

/// Makes an eventfd readable. Its count saturates; there is nothing else to fail.
pub(crate) fn notify(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Bounds what is in flight, and lets futures wait for their turn.
#[derive(Debug)]
pub(crate) struct Gate {
    depth: usize,
    inside: AtomicUsize,
    crowded: AtomicBool,
    waiting: Mutex<Waiting>,
    process: Owner,
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: BTreeMap<u64, Waker>,
    next: u64,
}

/// A future's word with the gate to be woken when there may be a place. Dropping it takes the word
/// back.
#[derive(Debug)]
pub(crate) struct Turn {
    gate: Arc<Gate>,
    id: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // In a forked child a thread that is not there may have held the lock.
        if self.gate.process.is_here() {
            lock(&self.gate.waiting).wakers.remove(&self.id);
        }
    }
}

impl Gate {
    pub(crate) fn new(depth: usize) -> Gate {
        Gate {
            depth,
            inside: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
            waiting: Mutex::default(),
            process: Owner::current(),
        }
    }

    /// Takes a place, if there is one.
    pub(crate) fn enter(&self) -> bool {
        self.inside
            .fetch_update(SeqCst, SeqCst, |n| (n < self.depth).then_some(n + 1))
            .is_ok()
    }

    /// Takes so many places, or none.
    pub(crate) fn enter_all(&self, count: usize) -> bool {
        self.inside
            .fetch_update(SeqCst, SeqCst, |n| {
                n.checked_add(count).filter(|n| *n <= self.depth)
            })
            .is_ok()
    }

    /// Takes a place, or leaves word (in `turn`) to be woken when there may be one.
    pub(crate) fn enter_or_wait(self: &Arc<Gate>, waker: &Waker, turn: &mut Option<Turn>) -> bool {
        if self.enter() {
            return true;
        }
        {
            let mut waiting = lock(&self.waiting);
            let id = match turn {
                Some(turn) => turn.id,
                None => {
                    waiting.next += 1;
                    *turn = Some(Turn {
                        gate: self.clone(),
                        id: waiting.next,
                    });
                    waiting.next
                }
            };
            waiting.wakers.insert(id, waker.clone());
            self.crowded.store(true, SeqCst);
        }
        // A place may have come free before the word was left.
        self.enter()
    }

    /// Gives places back.
    pub(crate) fn leave(&self, n: usize) {
        self.inside.fetch_sub(n, SeqCst);
        if self.crowded.load(SeqCst) {
            let woken = {
                let mut waiting = lock(&self.waiting);
                self.crowded.store(false, SeqCst);
                std::mem::take(&mut waiting.wakers)
            };
            woken.into_values().for_each(wake);
        }
    }

    /// How many are in flight.
    pub(crate) fn inside(&self) -> usize {
        self.inside.load(SeqCst)
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }
}

/// Wakes a future. A waker is the program's code, and its panic must not end a thread that all others
/// wait for.
pub(crate) fn wake(waker: Waker) {
    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

/// Locks a mutex. What these protect is whole at every moment that a panic could interrupt.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
