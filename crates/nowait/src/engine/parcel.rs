//! A parcel: one operation on its way through an engine, and where its completion is to go.

use std::sync::Arc;
use std::time::Instant;

use crate::completion::{Completion, Origin, Provenance, ServedBy, Ticket};
use crate::engine::Core;
use crate::engine::op_state::Flight;
use crate::error::{Error, ErrorKind};
use crate::foreign;
use crate::handle::Handle;
use crate::op::{Kind, Op, Step};
use crate::read::Rest;
use crate::stats::{Count, ns_since, sometimes_now};
use crate::sys::Errno;

use super::class::Class;
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

/// Where a completion goes, and the class whose place it gives back.
#[derive(Debug)]
pub(crate) enum Reply {
    /// To the thread that drives the engine itself.
    Local,
    /// To a future.
    Flight(Arc<Flight>, Class),
    /// To a reaper.
    Queue(Arc<CompletionQueue>, Class),
    /// Nowhere: a readahead.
    Ahead,
}

/// A completion that nothing waits for any more. To drop it may close a file, which can wait, and
/// runs destructors of the program: the owner leaves that to a worker.
#[derive(Debug)]
#[must_use]
pub(crate) struct Unwanted {
    completion: Completion,
    /// The place that it takes until it is dropped.
    place: Option<Class>,
}

impl Unwanted {
    /// The file it may close.
    pub(crate) fn handle(&self) -> Option<&Handle> {
        self.completion.held.kind.handle()
    }

    /// Drops it.
    pub(crate) fn discard(self, core: &Core) {
        foreign::discard(self.completion);
        if let Some(class) = self.place {
            core.places(class).give_back(1);
        }
    }
}

impl Reply {
    /// Hands the completion over. Runs on the owner or on a worker. Gives it back if nothing waits
    /// for it.
    pub(crate) fn deliver(self, core: &Core, completion: Completion) -> Option<Unwanted> {
        match self {
            Reply::Local => None,
            Reply::Ahead => {
                core.aheads.give_back(1);
                None
            }
            Reply::Flight(flight, class) => {
                let unwanted = |completion, place| Some(Unwanted { completion, place });
                if Arc::strong_count(&flight) == 1 {
                    return unwanted(completion, Some(class));
                }
                core.places(class).give_back(1);
                flight.land(completion);
                // Its future may have been dropped since.
                unwanted(Arc::into_inner(flight)?.into_landed()?, None)
            }
            // It counts as in flight until it is reaped: unreaped completions are memory too.
            Reply::Queue(completions, class) => {
                let completion = completions.push(class, completion)?;
                Some(Unwanted {
                    completion,
                    place: Some(class),
                })
            }
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
            if !matches!(self.reply, Reply::Flight(..)) {
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
