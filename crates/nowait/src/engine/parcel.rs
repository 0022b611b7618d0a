//! A parcel: one operation on its way through an engine, and where its completion is to go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::completion::{Completion, Origin, Provenance, ServedBy, Ticket};
use crate::engine::Core;
use crate::engine::op_state::Flight;
use crate::error::{Error, ErrorKind};
use crate::foreign;
use crate::op::{Kind, Op};
use crate::read::Rest;
use crate::stats::{Count, ns_since, sometimes_now};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use crate::sync::{Mutex, lock};
use crate::sys::Errno;

use super::completion_queue::CompletionQueue;

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
    Queue(Arc<CompletionQueue>),
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
            Reply::Queue(completions) => drop(completions.push(completion)),
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
        let _ = self.op.kind.settle(Err(Errno::CANCELED));
        self.finish(core, Err(Errno::CANCELED), ServedBy::Caller)
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

/// Bounds what is in flight, and lets futures wait for their turn.
#[derive(Debug)]
pub(crate) struct Gate {
    depth: usize,
    inside: AtomicUsize,
    crowded: AtomicBool,
    waiting: Mutex<Waiting>,
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
        lock(&self.gate.waiting).wakers.remove(&self.id);
    }
}

impl Gate {
    pub(crate) fn new(depth: usize) -> Gate {
        Gate {
            depth,
            inside: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
            waiting: Mutex::default(),
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
    foreign::call(|| waker.wake());
}
