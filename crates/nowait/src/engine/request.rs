//! A request: one operation inside an engine.

use super::completion::{Completion, Ticket};
use super::completion_target::{CompletionTarget, DroppedCompletion};
use super::core::Core;
use crate::error::{Error, ErrorKind};
use crate::handle::Handle;
use crate::op::{Body, Kind, Op, Progress, Step};
use crate::policy::provenance::{Arrival, Origin, Provenance, Read, ServedBy, origin};
use crate::policy::stats::{Count, ns_since, sometimes_now};
use crate::sys::Errno;
use crate::sys::cast::to_u32;
use nowait_residency::pages;

/// One operation inside an engine.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) ticket: Ticket,
    pub(crate) target: CompletionTarget,
}

/// The result of a request that is done.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) result: Result<usize, Errno>,
    pub(crate) by: ServedBy,
}

impl Request {
    /// Makes a request for the part of an operation that the calling thread left.
    #[inline]
    pub(crate) fn new(mut op: Op, ticket: Ticket, target: CompletionTarget) -> Request {
        op.body.progress.queued = sometimes_now();
        Request { op, ticket, target }
    }

    /// Ends a read of a file that hits, if its first result, which was there when the submission returned, has all its
    /// bytes. Returns false, and does nothing, in all other cases.
    #[inline]
    pub(crate) fn end_if_hit(&mut self, n: usize) -> bool {
        let Body { kind, progress, .. } = &mut *self.op.body;
        let Kind::Read(read) = kind else {
            return false;
        };
        let is_untried = !progress.missed && progress.resident.is_none();
        let is_hit = is_untried && read.file().expects_hits() && read.end_if_filled_by(n);
        if is_hit {
            progress.provenance.add(n, Origin::Cache);
        }
        is_hit
    }

    /// Gives a result to the operation. An operation that is to be stopped is not continued.
    pub(crate) fn settle(&mut self, result: Result<usize, Errno>) -> Step {
        let Body { kind, progress, .. } = &mut *self.op.body;
        match kind.settle(result) {
            Step::Again if progress.stopped.is_some() => kind.settle(Err(Errno::CANCELED)),
            step => step,
        }
    }

    /// Records the origin of the `n` bytes of one kernel read.
    pub(crate) fn arrived(&mut self, n: usize, arrival: Arrival) {
        let Body { kind, progress, .. } = &mut *self.op.body;
        let n = match kind {
            Kind::Read(read) => read.brings(n),
            _ => n,
        };
        let (offset, handle) = match (&*kind, kind.handle()) {
            (Kind::Read(read), Some(handle)) => (read.left_range().map(|(at, _)| at), handle),
            (Kind::Readv(read), Some(handle)) => (read.next_offset(), handle),
            _ => return,
        };
        if let Some(resident) = &mut progress.resident {
            let cached = n.min(*resident as usize);
            *resident -= to_u32(cached);
            progress.provenance.add(cached, Origin::Cache);
            return progress.provenance.add(n - cached, Origin::Device);
        }
        let cached_at = offset.filter(|_| handle.is_regular() && !handle.is_direct());
        let origin = origin(Read {
            bytes: n,
            direct: handle.is_direct(),
            cached_at,
            missed: progress.missed,
            nowait_works: handle.nowait_read().works(),
            arrival,
        });
        if !progress.missed && cached_at.is_some() {
            match origin {
                Origin::Cache => handle.history().record(true),
                Origin::Device => handle.history().record(false),
                Origin::Unknown => {}
            }
        }
        progress.provenance.add(n, origin);
    }

    /// Returns true if a worker should count how much of the data is in the page cache. That is so
    /// for a read of several pages that the calling thread has not tried.
    pub(crate) fn wants_origin(&self) -> bool {
        let Kind::Read(read) = &self.op.body.kind else {
            return false;
        };
        let cacheable = |handle: &Handle| handle.is_regular() && !handle.is_direct();
        let left = read.left_range();
        self.op.body.progress.resident.is_none()
            && !self.op.body.progress.missed
            && left.is_some_and(|(at, len)| pages(at, len as u64) > 1)
            && self.op.body.kind.is_unflagged()
            && self.op.body.kind.handle().is_some_and(cacheable)
    }

    /// Reads cached data in a worker, and counts the resident bytes of the rest. Returns the result
    /// if nothing is left.
    pub(crate) fn read_cached(&mut self) -> Option<Result<usize, Errno>> {
        let handle = self.op.body.kind.handle()?.clone();
        let Kind::Read(read) = &mut self.op.body.kind else {
            return None;
        };
        if handle.nowait_read().is_refused() {
            return None;
        }
        match read.run_at_once() {
            Ok(n @ 1..) => {
                handle.nowait_read_worked();
                self.arrived(n, Arrival::CompletedInline);
                if let Step::Done(result) = self.op.body.kind.settle(Ok(n)) {
                    return Some(result);
                }
            }
            Err(Errno::AGAIN) => {
                handle.nowait_read_worked();
                handle.history().record(false);
            }
            Err(Errno::OPNOTSUPP) => handle.nowait_read_refused(),
            // The ordinary read reports the error or the end of the file.
            _ => {}
        }
        let Kind::Read(read) = &self.op.body.kind else {
            return None;
        };
        let (at, left) = read.left_range()?;
        self.op.body.progress.missed = true;
        self.op.body.progress.resident = handle.resident_bytes(at, left);
        None
    }

    /// Makes a request for a readahead by a worker. Returns `None` if the engine's limit of
    /// readaheads is reached, or in a forked child.
    pub(crate) fn ahead(core: &Core, op: Op) -> Option<Request> {
        if !core.process.is_here() || !core.aheads.try_acquire(1) {
            return None;
        }
        core.policy.counters.count(Count::Aheads);
        Some(Request::new(op, Ticket::AHEAD, CompletionTarget::Ahead))
    }

    /// Makes the completion, counts it, and delivers it. Returns it if nothing waits for it.
    pub(crate) fn deliver(mut self, core: &Core, outcome: Outcome) -> Option<DroppedCompletion> {
        let is_future = matches!(self.target, CompletionTarget::Future(..));
        let target = std::mem::replace(&mut self.target, CompletionTarget::Local);
        target.deliver(core, self.complete(core, outcome, is_future))
    }

    /// Makes the completion, and counts it. For a future the wake-up is still to come, so that the future measures
    /// the handoff.
    // The completion is written once, to where the program finds it.
    #[inline(always)]
    pub(crate) fn complete(mut self, core: &Core, outcome: Outcome, is_future: bool) -> Completion {
        let Outcome { result, by } = outcome;
        let counters = &core.policy.counters;
        if let Some(deadline) = self.op.get_deadline() {
            core.deadlines.remove(deadline, self.ticket);
        }
        let count = match by {
            ServedBy::Ring => Count::Ring,
            ServedBy::Worker | ServedBy::Caller => Count::Workers,
        };
        let bytes = match result {
            Ok(n) if self.op.body.kind.is_transfer() => n as u64,
            _ => 0,
        };
        counters.add2(count, 1, Count::EngineBytes, bytes);
        // The program may submit the operation again.
        let Progress {
            mut provenance,
            queued,
            stopped,
            ..
        } = std::mem::take(&mut self.op.body.progress);
        if let Some(queued) = queued
            && !is_future
        {
            core.policy.handed_off(provenance, ns_since(queued));
        }
        let result = match result {
            Ok(n) => Ok(n),
            Err(errno) => {
                counters.count(Count::Errors);
                provenance = Provenance::default();
                Err(self.error(errno, stopped))
            }
        };
        provenance.served_by = by;
        Completion {
            result,
            op: self.op,
            provenance,
            ticket: Some(self.ticket),
        }
    }

    /// Stops a request before it began.
    pub(crate) fn stop(mut self, why: ErrorKind) -> (Request, Outcome) {
        self.op.body.progress.stopped = Some(why);
        let result = match self.op.body.kind.settle(Err(Errno::CANCELED)) {
            // Data that the calling thread has transferred counts.
            Step::Done(result) => result,
            Step::Again => Err(Errno::CANCELED),
        };
        let by = ServedBy::Caller;
        (self, Outcome { result, by })
    }

    #[cold]
    fn error(&self, errno: Errno, stopped: Option<ErrorKind>) -> Error {
        let path = self.op.body.kind.handle().and_then(|h| h.shared_path());
        match (errno, stopped) {
            (Errno::CANCELED | Errno::INTR, Some(why)) => Error::new(self.op.name(), why),
            _ => Error::os(self.op.name(), errno),
        }
        .on(path)
    }
}
