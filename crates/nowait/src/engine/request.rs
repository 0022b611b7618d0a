//! A request: one operation inside an engine.

use std::time::Instant;

use super::core::Core;
use super::reply::Reply;
use crate::cast::to_u32;
use crate::completion::{Completion, Ticket};
use crate::error::{Error, ErrorKind};
use crate::handle::Handle;
use crate::op::{Kind, Op, Step};
use crate::provenance::{Arrival, Origin, Provenance, Read, ServedBy, origin};
use crate::read::{Rest, Route};
use crate::stats::{Count, ns_since, sometimes_now};
use crate::sys::Errno;
use crate::sys::process::page_size;

/// One operation inside an engine.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) ticket: Ticket,
    pub(crate) reply: Reply,
    /// The provenance of the bytes that the calling thread has read already.
    pub(crate) provenance: Provenance,
    /// True if the calling thread tried, and the page cache did not have the next byte.
    pub(crate) missed: bool,
    /// The number of remaining bytes that were in the page cache, if they were counted.
    pub(crate) resident: Option<u32>,
    /// The time when it was queued, for one request in 64.
    pub(crate) queued: Option<Instant>,
    /// The reason for stopping the operation, if it is to be stopped.
    pub(crate) stopped: Option<ErrorKind>,
}

impl Request {
    /// Makes a request for the part of an operation that the calling thread left, with its route.
    #[inline]
    pub(crate) fn new(
        op: Op,
        rest: Option<Rest>,
        ticket: Ticket,
        reply: Reply,
    ) -> (Request, Route) {
        let rest = rest.unwrap_or(Rest::of(0, false, Route::Ring));
        let request = Request {
            op,
            ticket,
            reply,
            provenance: rest.provenance,
            missed: rest.missed,
            resident: rest.resident,
            queued: sometimes_now(),
            stopped: None,
        };
        (request, rest.route)
    }

    /// The deadline and the ticket, if there is a deadline.
    pub(crate) fn due(&self) -> Option<(Instant, Ticket)> {
        Some((self.op.get_deadline()?, self.ticket))
    }

    /// Records the origin of the `n` bytes of one kernel read.
    pub(crate) fn arrived(&mut self, n: usize, arrival: Arrival) {
        let n = match &mut self.op.kind {
            Kind::Read(read) => read.brings(n),
            _ => n,
        };
        let (positional, handle) = match (&self.op.kind, self.op.kind.handle()) {
            (Kind::Read(read), Some(handle)) => (read.positional().is_some(), handle),
            (Kind::Readv(read), Some(handle)) => (read.positional().is_some(), handle),
            _ => return,
        };
        if let Some(resident) = &mut self.resident {
            let cached = n.min(*resident as usize);
            *resident -= to_u32(cached);
            self.provenance.add(cached, Origin::Cache);
            return self.provenance.add(n - cached, Origin::Device);
        }
        let cacheable = handle.is_regular() && positional && !handle.is_direct();
        let origin = origin(Read {
            bytes: n,
            direct: handle.is_direct(),
            cacheable,
            missed: self.missed,
            nowait_works: handle.nowait_read().works(),
            arrival,
        });
        if !self.missed && cacheable {
            match origin {
                Origin::Cache => handle.history().found(true),
                Origin::Device => handle.history().found(false),
                Origin::Unknown => {}
            }
        }
        self.provenance.add(n, origin);
    }

    /// Returns true if a worker should count how much of the data is in the page cache. That is so
    /// for a read of several pages that the calling thread has not tried.
    pub(crate) fn wants_origin(&self) -> bool {
        let Kind::Read(read) = &self.op.kind else {
            return false;
        };
        let cacheable = |handle: &Handle| handle.is_regular() && !handle.is_direct();
        let left = read.left_range();
        self.resident.is_none()
            && !self.missed
            && left.is_some_and(|(_, len)| len > page_size())
            && self.op.kind.is_unflagged()
            && self.op.kind.handle().is_some_and(cacheable)
    }

    /// Reads cached data in a worker, and counts the resident bytes of the rest. Returns the result
    /// if nothing is left.
    pub(crate) fn try_cache(&mut self) -> Option<Result<usize, Errno>> {
        let handle = self.op.kind.handle()?.clone();
        let Kind::Read(read) = &mut self.op.kind else {
            return None;
        };
        if handle.nowait_read().is_refused() {
            return None;
        }
        match read.run_at_once() {
            Ok(n @ 1..) => {
                handle.nowait_read_worked();
                self.arrived(n, Arrival::CompletedInline);
                if let Step::Done(result) = self.op.kind.settle(Ok(n)) {
                    return Some(result);
                }
            }
            Err(Errno::AGAIN) => {
                handle.nowait_read_worked();
                handle.history().found(false);
            }
            Err(Errno::OPNOTSUPP) => handle.nowait_read_refused(),
            // The ordinary read reports the error or the end of the file.
            _ => {}
        }
        let Kind::Read(read) = &self.op.kind else {
            return None;
        };
        let (at, left) = read.left_range()?;
        self.missed = true;
        self.resident = handle.resident_bytes(at, left);
        None
    }

    /// Makes a request for a readahead by a worker. Returns `None` if the engine's limit of
    /// readaheads is reached, or in a forked child.
    pub(crate) fn ahead(core: &Core, op: Op, ticket: Ticket) -> Option<Request> {
        if !core.process.is_here() || !core.aheads.try_acquire(1) {
            return None;
        }
        core.policy.counters.count(Count::Aheads);
        Some(Request::new(op, None, ticket, Reply::Ahead).0)
    }

    /// Makes the completion, and counts it.
    #[inline]
    pub(crate) fn finish(
        mut self,
        core: &Core,
        result: Result<usize, Errno>,
        by: ServedBy,
    ) -> (Reply, Completion) {
        let counters = &core.policy.counters;
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
            if !matches!(self.reply, Reply::OpState(..)) {
                // For a future the wake-up is still to come, so the future measures the handoff
                // itself.
                core.policy.handed_off(self.provenance, ns);
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
            op: self.op,
            provenance: self.provenance,
            ticket: Some(self.ticket),
        };
        (self.reply, completion)
    }

    /// The completion of a request that was stopped before it began.
    pub(crate) fn stop(mut self, core: &Core, why: ErrorKind) -> (Reply, Completion) {
        self.stopped = Some(why);
        let result = match self.op.kind.settle(Err(Errno::CANCELED)) {
            // Data that the calling thread has transferred counts.
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
