//! An io_uring ring and the operations that it holds. One thread submits entries and takes
//! completions.
//!
//! A slot holds one request from `push` until the last completion for it is consumed. Slots never
//! move, so pointers in submission queue entries stay valid. The user data of an entry is the
//! slot's number.
//!
//! A completion that is in the completion queue when the submitting call returns did not wait for
//! the device. `flush` records how many completions were there at that moment (`inline_end`). A
//! completion counts as a page cache hit only if it is before that end and its operation was
//! submitted in the same flush.
#![allow(unsafe_code)]

mod cancel;
mod enter;
pub(super) mod operations;
pub(super) mod options;
mod refused;
mod registrations;
mod restrictions;
pub(super) mod setup;
mod slots;
pub(super) mod support;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{EnterFlags, IoUring, opcode, squeue};
use rustix::event::EventfdFlags;

use operations::SupportedOperations;
use options::RingOptions;
use registrations::Registrations;
use setup::{ENTRIES, NewRing, descriptor};
use slots::Slots;

use super::core::Core;
use super::features::{Feature, Features};
use super::request::{Outcome, Request};
use crate::error::ErrorKind;
use crate::handle::Handle;
use crate::handle::registered::Table;
use crate::op::{Body, Kind, Registered, Step};
use crate::policy::provenance::{Arrival, ServedBy};
use crate::policy::stats::Count;
use crate::sys::cast::to_u32;
use crate::sys::eventfd::eventfd;
use crate::sys::{self, Errno, retry};

/// User data of the eventfd read that wakes the ring's thread.
const WAKE: u64 = u64::MAX;
/// User data of cancel requests. Their own results are ignored.
const CANCEL: u64 = u64::MAX - 1;
/// The number of reads submitted in one call while reads miss. The kernel plugs the block queue for
/// a submission of more than two requests: it holds requests back until the last one is prepared,
/// and the device is idle meanwhile. Batches of hits are submitted whole.
const COLD_SUBMIT_BATCH: usize = 2;

/// A request that leaves the ring.
#[derive(Debug)]
pub(crate) enum Returned {
    /// The request is done.
    Done(Request, Outcome),
    /// The ring cannot do the request after all. A worker gets it.
    Worker(Request),
}

/// The condition that ends a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitFor {
    /// The number of completions to wait for.
    min_complete: usize,
    /// The time after which one completion is enough.
    min_wait: Option<Duration>,
}

impl WaitFor {
    pub(crate) fn count(count: usize) -> WaitFor {
        WaitFor {
            min_complete: count,
            min_wait: None,
        }
    }

    /// Waits for `count` completions, or for one after `min_wait`. Only for a ring with
    /// [`waits_for_batches`](Ring::waits_for_batches).
    pub(crate) fn batch(count: usize, min_wait: Duration) -> WaitFor {
        WaitFor {
            min_complete: count,
            min_wait: Some(min_wait),
        }
    }
}

pub(crate) struct Ring {
    ring: IoUring,
    /// The registered number of the ring, which its thread uses instead of the descriptor.
    number: Option<u32>,
    modes: Modes,
    registrations: Registrations,
    operations: SupportedOperations,
    slots: Slots,
    submission: Submission,
    completion: CompletionState,
    wake: Wake,
    /// The time of the next attempt to cancel operations that did not stop, and the pause before
    /// it.
    cancel_again: Option<(Instant, Duration)>,
    core: Arc<Core>,
}

bitflags::bitflags! {
    /// The properties and the state of a ring.
    #[derive(Clone, Copy)]
    struct Modes: u8 {
        /// A kernel thread polls the submission queue (SQPOLL).
        const SQPOLL = 1;
        /// Completions are polled for (IOPOLL). Only reads and writes of O_DIRECT files are
        /// accepted.
        const POLLED = 1 << 1;
        /// One call can wait for several completions within a time, and then for one
        /// (`IORING_FEAT_MIN_TIMEOUT`).
        const MIN_WAIT = 1 << 2;
        /// The ring was set up with DEFER_TASKRUN. Completions are then delivered only in `wait`. A
        /// completion that arrives before `wait` completed during a submission.
        const DEFERRED = 1 << 3;
        /// A thread of the program drives the ring, to which signals are delivered.
        const SIGNALS_DELIVERED = 1 << 4;
        /// The kernel refused a submission. Nothing more is submitted.
        const BROKEN = 1 << 5;
        /// io_uring_enter(2) is denied: the ring cannot be entered at all.
        const DENIED = 1 << 6;
    }
}

/// The entries that the kernel has not taken, and those that it has.
#[derive(Default)]
struct Submission {
    /// The number of the current flush. Each slot records the flush that submits it.
    flush: u64,
    /// The number of entries made so far. Each entry is identified by its number.
    numbered: u64,
    /// The number of entries that the kernel has taken.
    taken: u64,
    /// True if entries of operations wait for a flush.
    queued: bool,
    /// The number of queued operations that the page cache may serve.
    buffered: usize,
    /// True if the last flush contained reads that missed the page cache.
    cold: bool,
}

/// The completions that were consumed, and those that wait to be.
#[derive(Default)]
struct CompletionState {
    /// Completions taken from the queue and not yet consumed, by user data.
    overflow: VecDeque<(u64, i32)>,
    /// True if completions were delivered while a submission was retried.
    delivered_in_retry: bool,
    /// The number of completions consumed so far.
    seen: u64,
    /// The number of the last completion that was in the queue when the last flush ended.
    inline_end: u64,
}

impl CompletionState {
    /// The moment at which the last consumed completion arrived. `is_last_flush` is true if the last flush has submitted
    /// its operation.
    fn arrival(&self, is_async: bool, is_last_flush: bool) -> Arrival {
        if is_async {
            Arrival::Indeterminate
        } else if self.seen <= self.inline_end && is_last_flush {
            Arrival::CompletedInline
        } else {
            Arrival::Later
        }
    }
}

/// The eventfd that wakes the ring's thread, and the ring's read request for it.
struct Wake {
    event: Arc<OwnedFd>,
    count: Box<[u8; 8]>,
    is_armed: bool,
}

impl Ring {
    /// Makes a ring for `depth` operations. It must be called on the thread that will drive the
    /// ring.
    pub(crate) fn new(
        core: &Arc<Core>,
        depth: usize,
        options: &RingOptions,
    ) -> std::io::Result<(Ring, Features)> {
        let entries = to_u32(depth.next_power_of_two().min(ENTRIES));
        // The queue has room for all completions, the wake-up and the cancel requests: it cannot
        // overflow.
        let completions = to_u32(2 * depth.next_power_of_two() + 8);
        let NewRing {
            mut ring,
            deferred,
            number,
            mut features,
        } = setup::make(entries, completions, options)?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let supported = |code| u8::try_from(code).is_ok_and(|code| probe.is_supported(code));
        let ops = Arc::new(std::array::from_fn(supported));
        let polled = features.has(Feature::Polled);
        let event = eventfd(EventfdFlags::empty())?;
        if !polled {
            restrictions::try_needed(&mut ring, &event)?;
        }
        let registrations = Registrations::new(&ring, &options.pools, &mut features);
        let mut modes = Modes::empty();
        modes.set(Modes::SQPOLL, features.has(Feature::Sqpoll));
        modes.set(Modes::POLLED, polled);
        modes.set(Modes::MIN_WAIT, features.has(Feature::MinWait));
        modes.set(Modes::DEFERRED, deferred);
        let ring = Ring {
            number,
            modes,
            registrations,
            ring,
            operations: SupportedOperations { ops, polled },
            slots: Slots::new(depth),
            submission: Submission {
                flush: 1,
                ..Submission::default()
            },
            completion: CompletionState::default(),
            wake: Wake {
                event: Arc::new(event),
                count: Box::new([0; 8]),
                is_armed: false,
            },
            cancel_again: None,
            core: core.clone(),
        };
        Ok((ring, features))
    }

    /// Records that the program's own thread drives the ring. Operations that may raise a signal
    /// are then left to kernel workers, which take no signals.
    pub(crate) fn set_delivers_signals(&mut self) {
        self.modes |= Modes::SIGNALS_DELIVERED;
    }

    /// The eventfd that another thread writes to in order to wake this thread from `wait`.
    pub(crate) fn waker(&self) -> &Arc<OwnedFd> {
        &self.wake.event
    }

    /// Returns true if the ring supports this operation with the semantics of the system call.
    pub(crate) fn supports(&self, kind: &Kind) -> bool {
        !self.modes.contains(Modes::BROKEN) && self.operations.contains(kind)
    }

    /// The operations that the ring supports, for use by other threads.
    pub(crate) fn operations(&self) -> &SupportedOperations {
        &self.operations
    }

    /// Returns true if completions arrive only when the device is polled: `wait` must then be
    /// called repeatedly.
    pub(crate) fn must_poll(&self) -> bool {
        self.modes.contains(Modes::POLLED) && self.held() > 0
    }

    /// Returns true if one call can wait for several completions within a time, and then for one.
    pub(crate) fn waits_for_batches(&self) -> bool {
        self.modes.contains(Modes::MIN_WAIT) && !self.modes.contains(Modes::POLLED)
    }

    /// Registers a table for the files of a set.
    pub(crate) fn register_files(&mut self, table: &Arc<Table>) -> std::io::Result<()> {
        self.registrations.files(&self.ring, table)
    }

    /// The number of operations that the ring holds.
    pub(crate) fn held(&self) -> usize {
        self.slots.held()
    }

    /// Returns true if entries of operations wait for a flush. `wait` does not submit them.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.submission.queued
    }

    /// Queues an operation, which `flush` submits. Returns the operation if no slot is free or it
    /// cannot be queued.
    #[must_use]
    #[inline(always)]
    pub(crate) fn push(&mut self, request: Request) -> Option<Request> {
        let index = match self.slots.insert(request) {
            Ok(index) => index,
            Err(request) => return Some(request),
        };
        if self.prepare(index) {
            return None;
        }
        self.slots.remove(index)
    }

    /// Puts the entry of a slot's operation into the submission queue. Returns false if that is
    /// impossible. The kernel then never sees the entry.
    #[must_use]
    #[inline(never)]
    fn prepare(&mut self, index: u32) -> bool {
        self.entry(index).is_some_and(|entry| self.enqueue(&entry))
    }

    /// Like `prepare`, for an operation that was submitted before. A worker gets it if it cannot be
    /// queued.
    #[cold]
    fn prepare_again(&mut self, index: u32) -> Option<Returned> {
        if self.prepare(index) {
            return None;
        }
        self.slots.remove(index).map(Returned::Worker)
    }

    /// The submission queue entry of a slot's operation. The next flush submits it.
    #[inline(always)]
    fn entry(&mut self, index: u32) -> Option<squeue::Entry> {
        self.registrations.refresh(&self.ring);
        let slot = self.slots.get_mut(index);
        slot.flush = self.submission.flush;
        slot.entry = self.submission.numbered;
        self.submission.numbered += 1;
        self.submission.queued = true;
        let kind = &mut slot.request.as_mut()?.op.body.kind;
        let signals = self.modes.contains(Modes::SIGNALS_DELIVERED) && kind.may_signal();
        let asynchronous = signals || kind.syncs_in_submission();
        slot.is_async = asynchronous || self.modes.contains(Modes::SQPOLL);
        self.submission.buffered += usize::from(kind.may_be_cached());
        let mut known = self.registrations.of(kind);
        let mut flags = squeue::Flags::empty();
        flags.set(squeue::Flags::FIXED_FILE, known.slot.is_some());
        flags.set(squeue::Flags::ASYNC, asynchronous);
        if slot.is_probe {
            known.slot = Some(Registered::NO_FILE);
        }
        let entry = match slot.is_probe && kind.handle().is_none() {
            true => restrictions::without_file(kind.opcode()),
            false => kind.sqe(&known),
        };
        Some(entry.flags(flags).user_data(u64::from(index)))
    }

    /// Queues an entry that belongs to no operation.
    fn enqueue_own(&mut self, entry: &squeue::Entry) -> bool {
        self.submission.numbered += 1;
        self.enqueue(entry)
    }

    /// Writes an entry to the submission queue. If the queue is full, its entries are submitted
    /// first. Returns false if the kernel does not take them.
    #[inline(always)]
    fn enqueue(&mut self, entry: &squeue::Entry) -> bool {
        loop {
            // SAFETY: Assumption: a request in a slot of `self.slots`, or `self`, owns all memory
            // that the entry points to. Neither is moved, touched or freed until the entry's
            // completion is consumed. Slots are boxed and never reallocated. `Drop` leaks them if
            // the kernel does not release them in time.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return true;
            }
            if !self.enter(ENTRIES) {
                return false;
            }
        }
    }

    /// Submits all queued entries, and marks those that completed immediately. `out` receives the
    /// completions that were there before.
    pub(crate) fn flush(&mut self, out: &mut impl FnMut(Returned)) {
        self.registrations.refresh(&self.ring);
        if self.submission.queued {
            self.drain(out);
            self.submission.queued = false;
            let buffered = std::mem::take(&mut self.submission.buffered);
            if self.modes.contains(Modes::SQPOLL) {
                // The kernel thread takes the entries from here.
                self.wake_kernel_thread();
                self.submission.flush += 1;
                return;
            }
            let all = self.ring.submission().len();
            let piece = if self.submission.cold && buffered > 0 {
                COLD_SUBMIT_BATCH
            } else {
                all
            };
            while !self.ring.submission().is_empty() {
                if !self.enter(piece) {
                    return self.give_up(out);
                }
            }
            let inline = self.ring.completion().len();
            let at_once = if std::mem::take(&mut self.completion.delivered_in_retry) {
                0
            } else {
                inline as u64
            };
            self.completion.inline_end = self.completion.seen + at_once;
            self.submission.flush += 1;
            self.submission.cold = self.modes.contains(Modes::DEFERRED) && inline < buffered;
        }
    }

    /// Like `flush`, but the same call also waits for `want` completions, none of which count as
    /// immediate. Operations that the page cache may serve and SQPOLL rings are flushed without a
    /// wait.
    pub(crate) fn flush_and_wait(&mut self, want: usize, out: &mut impl FnMut(Returned)) {
        // Completions are matched with the flush that submitted them, so those present are consumed
        // first. If a cancel request may have to be repeated, this call does not wait.
        let seen = self.completion.seen;
        self.drain(out);
        let came = self.completion.seen > seen || self.cancel_again.is_some();
        let plain = self.submission.buffered > 0
            || self.modes.contains(Modes::SQPOLL)
            || self.modes.contains(Modes::BROKEN);
        if came || plain || !self.submission.queued {
            return self.flush(out);
        }
        self.registrations.refresh(&self.ring);
        let entries = self.ring.submission().len();
        let want = want.min(self.held());
        let entered = self.call(to_u32(entries), to_u32(want), EnterFlags::GETEVENTS, None);
        if entered == Ok(entries) {
            self.submission.queued = false;
            self.completion.inline_end = self.completion.seen;
            self.submission.flush += 1;
        } else {
            // Submits the remaining entries, or handles the error.
            self.flush(out);
        }
    }

    /// Removes the operations that the kernel has not taken. Workers do them. The ring submits
    /// nothing more.
    fn give_up(&mut self, out: &mut impl FnMut(Returned)) {
        for index in self.slots.since_entry(self.submission.taken) {
            if let Some(request) = self.slots.remove(index) {
                out(Returned::Worker(request));
            }
        }
        self.submission.flush += 1;
    }

    /// Consumes the completions in the completion queue.
    pub(crate) fn drain(&mut self, out: &mut impl FnMut(Returned)) {
        while let Some(returned) = self.next_returned() {
            out(returned);
        }
    }

    /// Consumes completions up to the next request that leaves the ring.
    // Requests are moved once.
    #[inline(always)]
    pub(crate) fn next_returned(&mut self) -> Option<Returned> {
        loop {
            let (data, result) = match self.completion.overflow.pop_front() {
                None => {
                    let entry = self.ring.completion().next()?;
                    (entry.user_data(), entry.result())
                }
                Some(early) => early,
            };
            self.completion.seen += 1;
            // The user data of an operation is the number of its slot.
            if let Ok(index) = u32::try_from(data) {
                if let Some(returned) = self.complete(index, result) {
                    return Some(returned);
                }
            } else if data == WAKE {
                self.wake.is_armed = false;
            }
        }
    }

    /// Handles one completion of the operation in a slot.
    #[inline(always)]
    fn complete(&mut self, index: u32, result: i32) -> Option<Returned> {
        let slot = self.slots.get_mut(index);
        let request = slot.request.as_mut()?;
        let step = match usize::try_from(result) {
            Ok(n) if !slot.is_probe => {
                let is_last_flush = slot.flush + 1 == self.submission.flush;
                let arrival = self.completion.arrival(slot.is_async, is_last_flush);
                succeeded(&self.core, request, n, arrival)
            }
            converted => {
                let result = converted.map_err(|_| Errno::from_raw_os_error(-result));
                match self.failed(index, result) {
                    ControlFlow::Continue(step) => step,
                    ControlFlow::Break(returned) => return returned,
                }
            }
        };
        match step {
            Step::Again => self.prepare_again(index),
            Step::Done(result) => {
                let by = ServedBy::Ring;
                let done = |request| Returned::Done(request, Outcome { result, by });
                self.slots.remove(index).map(done)
            }
        }
    }

    /// Handles an error, or the result of a probe. Breaks if it is not that of the operation: the operation is tried again, or a worker does
    /// it.
    #[cold]
    fn failed(
        &mut self,
        index: u32,
        mut result: Result<usize, Errno>,
    ) -> ControlFlow<Option<Returned>, Step> {
        if self.slots.get_mut(index).is_probe || result == Err(Errno::ACCESS) {
            result = self.refused(index, result)?;
        }
        let slot = self.slots.get_mut(index);
        let Some(request) = &mut slot.request else {
            return ControlFlow::Break(None);
        };
        let Body { kind, progress, .. } = &mut *request.op.body;
        match result {
            // A polled ring returns this for all reads and writes of a device without poll queues.
            Err(Errno::OPNOTSUPP) if self.modes.contains(Modes::POLLED) && kind.is_unflagged() => {
                progress.stopped = Some(ErrorKind::NeedsPollQueues);
                result = Err(Errno::CANCELED);
            }
            // A signal interrupted a kernel worker. No stop was requested.
            Err(Errno::INTR)
                if progress.stopped.is_none()
                    && kind.may_repeat()
                    && slot.interrupted < retry::MAX_ATTEMPTS =>
            {
                slot.interrupted += 1;
                return ControlFlow::Break(self.prepare_again(index));
            }
            // The ring would have to wait and cannot. A worker can.
            Err(Errno::AGAIN) if kind.may_block() => {
                return ControlFlow::Break(self.slots.remove(index).map(Returned::Worker));
            }
            _ => {}
        }
        ControlFlow::Continue(request.settle(result))
    }

    /// Has the kernel signal this eventfd at each completion.
    pub(crate) fn register_event(&self, event: BorrowedFd<'_>) -> std::io::Result<()> {
        self.ring.submitter().register_eventfd(event.as_raw_fd())
    }

    /// The number of completions that are ready to be consumed.
    pub(crate) fn ready(&mut self) -> usize {
        self.completion.overflow.len() + self.ring.completion().len()
    }

    /// Returns true if `wait` would return immediately: there are completions, or the kernel
    /// delivers some at the next call.
    pub(crate) fn has_ready_completions(&mut self) -> bool {
        self.ready() > 0 || self.ring.submission().taskrun()
    }

    /// Leaks the ring in a forked child, where it and its memory belong to the parent.
    pub(crate) fn forget(self) {
        std::mem::forget(self);
    }
}

/// Gives the result of one kernel call, which has succeeded, to the operation.
#[inline(always)]
fn succeeded(core: &Core, request: &mut Request, n: usize, arrival: Arrival) -> Step {
    if arrival == Arrival::CompletedInline && request.end_if_hit(n) {
        core.policy.counters.count(Count::RingHits);
        return Step::Done(Ok(n));
    }
    // A device may answer before the submission returns.
    let is_direct = || request.op.body.kind.handle().is_some_and(Handle::is_direct);
    if arrival == Arrival::CompletedInline && !is_direct() {
        core.policy.counters.count(Count::RingHits);
    }
    request.arrived(n, arrival);
    request.settle(Ok(n))
}

/// The time for which a dropped ring waits for operations that it cancelled.
const GRACE: Duration = Duration::from_secs(1);

impl Drop for Ring {
    fn drop(&mut self) {
        self.cancel_all();
        if self.wake.is_armed {
            // The read of the eventfd would outlive the ring otherwise.
            let entry = opcode::AsyncCancel::new(WAKE).build();
            let _ = self.enqueue_own(&entry.user_data(CANCEL));
        }
        let end = Instant::now() + GRACE;
        while (self.held() > 0 || self.wake.is_armed) && Instant::now() < end {
            self.flush(&mut |_| {});
            self.sleep(WaitFor::count(1), Some(Duration::from_millis(10)));
            self.drain(&mut |_| {});
        }
        self.registrations.close();
        if let Some(number) = self.number.take() {
            let _ = sys::ring::unregister_ring(descriptor(&self.ring), number);
        }
        if self.held() > 0 || self.wake.is_armed {
            // A hung device still holds operations. Memory that the kernel may still write to is
            // never freed.
            self.slots.leak();
            std::mem::forget(std::mem::take(&mut self.wake.count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Options;
    use crate::engine::completion::Ticket;
    use crate::engine::completion_target::CompletionTarget;
    use crate::handle::Handle;
    use crate::op::{Op, Read};

    #[test]
    fn to_cancel_many_operations_costs_one_entry_each() {
        let options = Options::new();
        let core = Arc::new(Core::new(&options));
        let Ok((mut ring, _)) = Ring::new(&core, 64, &options.ring) else {
            return;
        };
        let (reader, _writer) = std::io::pipe().unwrap();
        let reader = Handle::new(reader).unwrap();
        for ticket in 0..64 {
            let read = Op::from(Read::stream(&reader, Box::new(vec![0u8; 1])));
            let request = Request::new(read, Ticket(ticket), CompletionTarget::Local);
            assert!(ring.push(request).is_none());
        }
        ring.flush(&mut |_| {});
        let before = ring.submission.numbered;
        for ticket in 0..64 {
            assert!(ring.cancel(Ticket(ticket), ErrorKind::Cancelled));
        }
        assert_eq!(ring.submission.numbered - before, 64);
    }
}
