//! The ring: an io_uring that one thread submits to and reaps, with the operations it owns.
//!
//! A slot holds one request from `push` until the kernel's last result for it is there; slots never
//! move, so the pointers in the ring's entries stay good. The entry's user data is the slot's
//! number.
//!
//! A result that is in the completion queue when submission returns was had without waiting:
//! `flush` marks how far the queue reached then, and only entries before that mark, of operations
//! submitted in that very flush, count as page cache hits.
#![allow(unsafe_code)]

pub(super) mod capabilities;
mod enter;
mod link;
pub(super) mod options;
pub(super) mod out;
mod registrations;
pub(super) mod setup;
pub(super) mod supported;
pub(super) mod until;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{EnterFlags, IoUring, opcode, squeue};
use rustix::event::EventfdFlags;

use options::RingOptions;
use out::Out;
use registrations::Registered;
use setup::{ENTRIES, Made, descriptor};
use supported::Supported;
use until::Until;

use super::chain::LinkState;
use super::core::Core;
use super::features::{Feature, Features};
use super::request::Request;
use crate::cast::to_u32;
use crate::completion::Ticket;
use crate::error::ErrorKind;
use crate::op::{Kind, Step};
use crate::provenance::{Arrival, ServedBy};
use crate::registered::Table;
use crate::retry;
use crate::stats::Count;
use crate::sys::eventfd::eventfd;
use crate::sys::{self, Errno};

/// User data of the read that wakes us.
const WAKE: u64 = u64::MAX;
/// User data of cancel requests, whose own results don't matter.
const CANCEL: u64 = u64::MAX - 1;
/// So many reads that miss are submitted at once. The kernel holds back the requests of a longer
/// submission until the last of them is prepared (it plugs the block queue for more than two), and
/// the device idles meanwhile. Batches of hits don't mind, and go whole.
const PIECE: usize = 2;

/// How soon an operation that was not stopped is asked to stop again, and how rarely in the end.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Ring {
    ring: IoUring,
    /// What it is entered by instead of its descriptor, in its thread.
    number: Option<u32>,
    /// A thread of the kernel's takes what is queued.
    sqpoll: bool,
    /// Completions are polled for, and reads and writes of O_DIRECT files alone are taken.
    polled: bool,
    /// One call waits for many within a time, and for one after it.
    min_wait: bool,
    registered: Registered,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    supported: Supported,
    /// The chains it holds, by numbers of its own.
    chains: HashMap<u32, LinkState>,
    next_chain: u32,
    core: Arc<Core>,
    /// Counts flushes: a slot remembers in which one it is submitted.
    flush: u64,
    /// How many entries were made in all: each is known by its number.
    numbered: u64,
    /// How many of them the kernel has taken.
    taken: u64,
    /// Entries of operations wait for a flush.
    queued: bool,
    /// A chain is among them: they are submitted together.
    linked: bool,
    /// How many of those the page cache may serve.
    buffered: usize,
    /// The last flush met such as it did not.
    cold: bool,
    /// Completions come only in `wait` (DEFER_TASKRUN), so what is there earlier was inline, also
    /// after several submissions.
    deferred: bool,
    /// The kernel takes nothing more from us.
    broken: bool,
    /// Nor does it let us enter the ring at all.
    denied: bool,
    /// Completions, by their user data, that were taken from the queue and not consumed yet.
    aside: VecDeque<(u64, i32)>,
    /// Some were delivered while a submission was tried again.
    stirred: bool,
    /// How many completion entries were consumed in all.
    seen: u64,
    /// Up to which one the last flush found them there.
    mark: u64,
    wake: Arc<OwnedFd>,
    wake_count: Box<[u8; 8]>,
    wake_armed: bool,
    /// The thread that drives it is the program's, and takes signals.
    takes_signals: bool,
    /// When operations that are to be stopped, and have not been, are to be asked again.
    ask_again: Option<(Instant, Duration)>,
}

#[derive(Default)]
struct Slot {
    request: Option<Request>,
    flush: u64,
    /// The number of its entry.
    entry: u64,
    /// Somebody else than the submission looks into the page cache for it (IOSQE_ASYNC).
    elsewhere: bool,
    /// A thread of the kernel's is to do it: the ring had to wait and had no way to.
    asynchronous: bool,
    /// The chain it belongs to.
    chain: Option<u32>,
    /// How many times it was interrupted.
    interrupted: u32,
}

impl Ring {
    /// Makes a ring for `depth` operations. Must be called on the thread that will drive it.
    pub(crate) fn new(
        core: &Arc<Core>,
        depth: usize,
        options: &RingOptions,
    ) -> std::io::Result<(Ring, Features)> {
        let entries = to_u32(depth.next_power_of_two().min(ENTRIES));
        // Room for every completion, the wake-up and the cancels: the queue can't overflow.
        let completions = to_u32(2 * depth.next_power_of_two() + 8);
        let Made {
            ring,
            deferred,
            number,
            mut features,
        } = setup::make(entries, completions, options)?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let supported = |code| u8::try_from(code).is_ok_and(|code| probe.is_supported(code));
        let ops = Arc::new(std::array::from_fn(supported));
        let polled = features.has(Feature::Polled);
        let registered = Registered::new(&ring, &options.pools, &mut features);
        let ring = Ring {
            number,
            sqpoll: features.has(Feature::Sqpoll),
            polled,
            min_wait: features.has(Feature::MinWait),
            registered,
            ring,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..to_u32(depth)).rev().collect(),
            supported: Supported { ops, polled },
            chains: HashMap::new(),
            next_chain: 0,
            core: core.clone(),
            flush: 1,
            numbered: 0,
            taken: 0,
            queued: false,
            linked: false,
            buffered: 0,
            cold: false,
            deferred,
            broken: false,
            denied: false,
            aside: VecDeque::new(),
            stirred: false,
            seen: 0,
            mark: 0,
            wake: Arc::new(eventfd(EventfdFlags::empty())?),
            wake_count: Box::new([0; 8]),
            wake_armed: false,
            takes_signals: false,
            ask_again: None,
        };
        Ok((ring, features))
    }

    /// Says that the thread that drives it takes signals: what could raise one is left to the
    /// kernel's own workers, which don't.
    pub(crate) fn takes_signals(&mut self) {
        self.takes_signals = true;
    }

    /// What another thread writes to in order to wake this one from `wait`.
    pub(crate) fn waker(&self) -> &Arc<OwnedFd> {
        &self.wake
    }

    /// Whether this kernel's ring does this operation, and as the system call would.
    pub(crate) fn takes(&self, kind: &Kind) -> bool {
        !self.broken && self.supported.contains(kind)
    }

    /// The operations that it carries out, for other threads.
    pub(crate) fn supported(&self) -> &Supported {
        &self.supported
    }

    /// Whether what it holds is done only if somebody polls for it: `wait` must be called again and
    /// again.
    pub(crate) fn spins(&self) -> bool {
        self.polled && self.held() > 0
    }

    /// Whether one call waits for many within a time, and for one after it.
    pub(crate) fn waits_for_batches(&self) -> bool {
        self.min_wait && !self.polled
    }

    /// Registers room for the files of a set.
    pub(crate) fn register_files(&mut self, table: &Arc<Table>) -> std::io::Result<()> {
        self.registered.files(&self.ring, table)
    }

    /// How many operations it holds.
    pub(crate) fn held(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether entries of operations wait for a flush. `wait` does not submit them.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.queued
    }

    /// Takes an operation in; `flush` gives it to the kernel. Gives it back if every slot is taken.
    #[must_use]
    #[inline]
    pub(crate) fn push(&mut self, request: Request) -> Option<Request> {
        let Some(index) = self.free.pop() else {
            return Some(request);
        };
        self.slots[index as usize].request = Some(request);
        if self.prepare(index) {
            return None;
        }
        self.release(index)
    }

    /// Puts the entry of a slot's operation into the submission queue. False if it can't be: the
    /// kernel never sees it.
    #[must_use]
    fn prepare(&mut self, index: u32) -> bool {
        self.entry(index).is_some_and(|entry| self.enqueue(&entry))
    }

    /// As `prepare`, of an operation that was at the kernel before: if it can't be, workers have it.
    fn prepare_again(&mut self, index: u32, out: &mut impl FnMut(Out)) {
        if !self.prepare(index)
            && let Some(request) = self.release(index)
        {
            out(Out::without_ring(&self.core, request, false));
        }
    }

    /// The entry of a slot's operation, which is submitted by the next flush.
    fn entry(&mut self, index: u32) -> Option<squeue::Entry> {
        self.registered.refresh(&self.ring);
        let slot = &mut self.slots[index as usize];
        slot.flush = self.flush;
        slot.entry = self.numbered;
        self.numbered += 1;
        self.queued = true;
        let kind = &mut slot.request.as_mut()?.op.kind;
        let signals = self.takes_signals && kind.may_signal();
        let asynchronous = signals || slot.asynchronous || kind.is_not_to_be_tried();
        slot.elsewhere = asynchronous || self.sqpoll || slot.chain.is_some();
        self.buffered += usize::from(kind.may_be_cached());
        let known = self.registered.known(kind);
        let mut flags = squeue::Flags::empty();
        flags.set(
            squeue::Flags::FIXED_FILE,
            known.slot.is_some() && kind.in_slot(),
        );
        flags.set(squeue::Flags::ASYNC, asynchronous);
        Some(kind.sqe(&known).flags(flags).user_data(u64::from(index)))
    }

    /// Queues an entry that is no operation's.
    fn enqueue_own(&mut self, entry: &squeue::Entry) -> bool {
        self.numbered += 1;
        self.enqueue(entry)
    }

    fn enqueue(&mut self, entry: &squeue::Entry) -> bool {
        loop {
            // SAFETY: Assumption: whatever the entry points to is owned by a request in a slot of
            // `self.slots`, or by `self`, and neither moves, is touched or is freed until the
            // entry's completion is consumed. Slots are boxed and never reallocated; `Drop`
            // leaks them if the kernel does not let go in time.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return true;
            }
            if !self.enter(ENTRIES) {
                return false;
            }
        }
    }

    /// Gives everything queued to the kernel, and marks what was done at once. `out` gets what was
    /// there before.
    pub(crate) fn flush(&mut self, out: &mut impl FnMut(Out)) {
        self.registered.refresh(&self.ring);
        if self.queued {
            self.drain(out);
            self.queued = false;
            let buffered = std::mem::take(&mut self.buffered);
            if self.sqpoll {
                // Its thread takes them from here.
                self.linked = false;
                self.rouse();
                self.flush += 1;
                return;
            }
            let all = self.ring.submission().len();
            let linked = std::mem::take(&mut self.linked);
            // A chain that is submitted in pieces is several.
            let piece = if self.cold && buffered > 0 && !linked {
                PIECE
            } else {
                all
            };
            while !self.ring.submission().is_empty() {
                if !self.enter(piece) {
                    return self.give_up(out);
                }
            }
            let inline = self.ring.completion().len();
            let at_once = if std::mem::take(&mut self.stirred) {
                0
            } else {
                inline as u64
            };
            self.mark = self.seen + at_once;
            self.flush += 1;
            self.cold = self.deferred && inline < buffered;
        }
    }

    /// As `flush`, and waits in the same call until so many completions are there, of which none was
    /// had at once. What may be cached, or be taken otherwise, is flushed as ever, without a wait.
    pub(crate) fn flush_and_wait(&mut self, want: usize, out: &mut impl FnMut(Out)) {
        // What is there is told apart by the flush that it was submitted in, so it is taken first; and
        // who asks an operation to stop may have to ask again.
        let seen = self.seen;
        self.drain(out);
        let came = self.seen > seen || self.ask_again.is_some();
        let plain = self.buffered > 0 || self.linked || self.sqpoll || self.broken;
        if came || plain || !self.queued {
            return self.flush(out);
        }
        self.registered.refresh(&self.ring);
        let entries = self.ring.submission().len();
        let want = want.min(self.held());
        let entered = self.call(to_u32(entries), to_u32(want), EnterFlags::GETEVENTS, None);
        if entered == Ok(entries) {
            self.queued = false;
            self.mark = self.seen;
            self.flush += 1;
        } else {
            // The rest of them, or what is wrong.
            self.flush(out);
        }
    }

    /// The ring is never entered again, so what the kernel has not taken, workers may have.
    fn give_up(&mut self, out: &mut impl FnMut(Out)) {
        for (index, slot) in (0..).zip(&mut self.slots) {
            let untaken = slot.entry >= self.taken;
            if let Some(request) = slot.request.take_if(|_| untaken) {
                self.free.push(index);
                // Workers keep no order.
                let chained = slot.chain.take().is_some();
                out(Out::without_ring(&self.core, request, chained));
            }
        }
        let slots = &self.slots;
        self.chains.retain(|id, state| {
            state
                .members
                .retain(|index| slots[*index as usize].chain == Some(*id));
            !state.members.is_empty()
        });
        self.flush += 1;
    }

    /// Consumes what is in the completion queue.
    pub(crate) fn drain(&mut self, out: &mut impl FnMut(Out)) {
        loop {
            let next = || {
                let entry = self.ring.completion().next()?;
                Some((entry.user_data(), entry.result()))
            };
            let Some((data, result)) = self.aside.pop_front().or_else(next) else {
                break;
            };
            self.seen += 1;
            match data {
                WAKE => self.wake_armed = false,
                CANCEL => {}
                // Of an operation: the number of its slot.
                index => {
                    if let Ok(index) = u32::try_from(index) {
                        self.complete(index, result, out);
                    }
                }
            }
        }
    }

    #[inline]
    fn complete(&mut self, index: u32, result: i32, out: &mut impl FnMut(Out)) {
        let slot = &mut self.slots[index as usize];
        let arrival = if slot.elsewhere {
            Arrival::Indeterminate
        } else if self.seen <= self.mark && slot.flush + 1 == self.flush {
            Arrival::CompletedInline
        } else {
            Arrival::Later
        };
        let Some(request) = &mut slot.request else {
            return;
        };
        let result = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        let result = match result {
            // Said of every read and write whose device has nothing to be polled.
            Err(Errno::OPNOTSUPP) if self.polled && request.op.kind.is_unflagged() => {
                request.stopped = Some(ErrorKind::NeedsPollQueues);
                Err(Errno::CANCELED)
            }
            result => result,
        };
        if let Some(id) = slot.chain {
            return self.complete_member(id, index, result, arrival, out);
        }
        match result {
            // A signal met one of the kernel's own workers; nobody asked for a stop.
            Err(Errno::INTR)
                if request.stopped.is_none()
                    && request.op.kind.may_repeat()
                    && slot.interrupted < retry::MAX_ATTEMPTS =>
            {
                slot.interrupted += 1;
                return self.prepare_again(index, out);
            }
            // The ring would have to wait and has no way to: a thread has, the kernel's if it can
            // only be done there.
            Err(Errno::AGAIN) if request.op.kind.is_ring_only() && !slot.asynchronous => {
                slot.asynchronous = true;
                return self.prepare_again(index, out);
            }
            Err(Errno::AGAIN) if request.op.kind.may_block() && !request.op.kind.is_ring_only() => {
                if let Some(request) = self.release(index) {
                    out(Out::Worker(request));
                }
                return;
            }
            _ => {}
        }
        match self.step(index, result, arrival) {
            Step::Again => self.prepare_again(index, out),
            Step::Done(result) => self.done(index, result, out),
        }
    }

    /// Takes a result in: what the operation makes of it, unless somebody wants it stopped.
    fn step(&mut self, index: u32, result: Result<usize, Errno>, arrival: Arrival) -> Step {
        let Some(request) = &mut self.slots[index as usize].request else {
            return Step::Done(result);
        };
        if let Ok(n) = result {
            if arrival == Arrival::CompletedInline {
                self.core.policy.counters.count(Count::RingHits);
            }
            request.arrived(n, arrival);
        }
        match request.op.kind.settle(result) {
            Step::Again if request.stopped.is_some() => {
                let _ = request.op.kind.settle(Err(Errno::CANCELED));
                Step::Done(Err(Errno::CANCELED))
            }
            step => step,
        }
    }

    #[inline]
    fn done(&mut self, index: u32, result: Result<usize, Errno>, out: &mut impl FnMut(Out)) {
        if let Some(request) = self.release(index) {
            let (reply, completion) = request.finish(&self.core, result, ServedBy::Ring);
            out(Out::Done(reply, completion));
        }
    }

    #[inline]
    fn release(&mut self, index: u32) -> Option<Request> {
        self.free.push(index);
        std::mem::take(&mut self.slots[index as usize]).request
    }

    /// Asks the kernel to stop an operation; its completion tells whether it did.
    pub(crate) fn cancel(&mut self, ticket: Ticket, why: ErrorKind) -> bool {
        let held = self.slots.iter_mut().position(|slot| {
            let request = slot.request.as_mut().filter(|p| p.ticket == ticket);
            request.map(|request| request.stopped = Some(why)).is_some()
        });
        if let Some(index) = held.filter(|_| !self.polled) {
            self.ask_one(index);
            self.ask_again = Some((Instant::now() + FIRST_PAUSE, FIRST_PAUSE));
        }
        held.is_some()
    }

    /// Asks the kernel to stop what a slot holds.
    fn ask_one(&mut self, index: usize) {
        let entry = opcode::AsyncCancel::new(index as u64);
        self.queued |= self.enqueue_own(&entry.build().user_data(CANCEL));
    }

    fn cancel_all(&mut self) {
        for request in self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.request.as_mut())
        {
            request.stopped = Some(ErrorKind::Cancelled);
        }
        self.ask_to_stop();
    }

    /// Asks for every operation that somebody wants stopped; says whether there is one.
    fn ask_to_stop(&mut self) -> bool {
        if self.polled {
            // Such a ring has no entry for it, and what it holds is its device's.
            return false;
        }
        let mut asked = false;
        for index in 0..self.slots.len() {
            let request = self.slots[index].request.as_ref();
            if request.is_some_and(|p| p.stopped.is_some()) {
                self.ask_one(index);
                asked = true;
            }
        }
        asked
    }

    /// A request to stop can meet an operation at a moment when it can't be stopped (it was just
    /// woken, on kernels like 6.1), and is forgotten: it is asked again, ever more rarely.
    fn ask_to_stop_again(&mut self) {
        let due = self.ask_again.take_if(|(at, _)| *at <= Instant::now());
        if let Some((at, pause)) = due.filter(|_| self.ask_to_stop()) {
            let pause = (pause * 2).min(LAST_PAUSE);
            self.ask_again = Some((at + pause, pause));
        }
    }

    /// Has the kernel signal this eventfd at every completion.
    pub(crate) fn register_event(&self, event: BorrowedFd<'_>) -> std::io::Result<()> {
        self.ring.submitter().register_eventfd(event.as_raw_fd())
    }

    /// How many completions are there to be consumed.
    pub(crate) fn ready(&mut self) -> usize {
        self.aside.len() + self.ring.completion().len()
    }

    /// Gives up in a forked child, where ring and memory are the parent's: touches nothing.
    pub(crate) fn forget(self) {
        std::mem::forget(self);
    }
}

/// How long a dropped ring waits for operations that the kernel has been asked to stop.
const GRACE: Duration = Duration::from_secs(1);

impl Drop for Ring {
    fn drop(&mut self) {
        self.cancel_all();
        if self.wake_armed {
            // Its read would outlive us otherwise.
            let entry = opcode::AsyncCancel::new(WAKE).build();
            let _ = self.enqueue_own(&entry.user_data(CANCEL));
        }
        let end = Instant::now() + GRACE;
        while (self.held() > 0 || self.wake_armed) && Instant::now() < end {
            self.flush(&mut |_| {});
            self.sleep(Until::count(1), Some(Duration::from_millis(10)));
            self.drain(&mut |_| {});
        }
        self.registered.close();
        if let Some(number) = self.number.take() {
            let _ = sys::ring::unregister_ring(descriptor(&self.ring), number);
        }
        if self.held() > 0 || self.wake_armed {
            // A device that hangs holds them: what the kernel may still write to is never freed.
            std::mem::forget(std::mem::take(&mut self.slots));
            std::mem::forget(std::mem::take(&mut self.wake_count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Options;
    use crate::engine::reply::Reply;
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
            let (request, _) = Request::new(read, None, Ticket(ticket), Reply::Local);
            assert!(ring.push(request).is_none());
        }
        ring.flush(&mut |_| {});
        let before = ring.numbered;
        for ticket in 0..64 {
            assert!(ring.cancel(Ticket(ticket), ErrorKind::Cancelled));
        }
        assert_eq!(ring.numbered - before, 64);
    }
}
