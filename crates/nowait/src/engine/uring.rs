//! The ring: an io_uring that one thread submits to and reaps, with the operations it owns.
//!
//! A slot holds one parcel from `push` until the kernel's last result for it is there; slots never
//! move, so the pointers in the ring's entries stay good. The entry's user data is the slot's
//! number.
//!
//! A result that is in the completion queue when submission returns was had without waiting:
//! `flush` marks how far the queue reached then, and only entries before that mark, of operations
//! submitted in that very flush, count as page cache hits.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::EventfdFlags;

use super::Core;
use super::parcel::{Parcel, Reply, eventfd};
use crate::completion::{Completion, ServedBy, Ticket};
use crate::error::ErrorKind;
use crate::op::{Kind, Step};
use crate::stats::Count;
use crate::sys::Errno;

/// User data of the read that wakes us.
const WAKE: u64 = u64::MAX;
/// User data of cancel requests, whose own results don't matter.
const CANCEL: u64 = u64::MAX - 1;
/// Entries of the submission queue at most: more are flushed in between.
const ENTRIES: usize = 4096;
/// So many reads that miss are submitted at once. The kernel holds back the requests of a longer
/// submission until the last of them is prepared (it plugs the block queue for more than two), and
/// the device idles meanwhile. Batches of hits don't mind, and go whole.
const PIECE: usize = 2;

/// How soon an operation that was not stopped is asked to stop again, and how rarely in the end.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Ring {
    ring: IoUring,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    ops: Box<[bool; 256]>,
    core: Arc<Core>,
    /// Counts flushes: a slot remembers in which one it is submitted.
    flush: u64,
    /// Entries of operations wait for a flush.
    queued: bool,
    /// The last flush met reads that were not cached.
    cold: bool,
    /// Completions come only in `wait` (DEFER_TASKRUN), so what is there earlier was inline, also
    /// after several submissions.
    deferred: bool,
    /// The kernel does not let us enter it any more.
    broken: bool,
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
    parcel: Option<Parcel>,
    flush: u64,
}

/// What comes out of the ring.
pub(crate) enum Out {
    /// A completion, and where it goes.
    Done(Reply, Completion),
    /// An operation that the ring will not do after all: for a worker.
    Worker(Parcel),
}

impl Ring {
    /// Makes a ring for `depth` operations. Must be called on the thread that will drive it.
    pub(crate) fn new(core: &Arc<Core>, depth: usize) -> std::io::Result<Ring> {
        let entries = depth.next_power_of_two().min(ENTRIES) as u32;
        // Room for every completion, the wake-up and the cancels: the queue can't overflow.
        let completions = (2 * depth.next_power_of_two() + 8) as u32;
        let build = |single: bool, defer: bool| {
            let mut builder = IoUring::builder();
            builder
                .dontfork()
                .setup_clamp()
                .setup_cqsize(completions.max(2 * entries));
            if single {
                builder.setup_single_issuer();
            }
            if defer {
                builder.setup_defer_taskrun().setup_taskrun_flag();
            }
            builder.build(entries)
        };
        // 6.1 has both, 6.0 the first; older kernels say EINVAL. Only the last answer counts.
        let (ring, deferred) = build(true, true).map(|ring| (ring, true)).or_else(|_| {
            let ring = build(true, false).or_else(|_| build(false, false))?;
            Ok::<_, std::io::Error>((ring, false))
        })?;
        let params = ring.params();
        if !params.is_feature_ext_arg() || !params.is_feature_nodrop() {
            // Before 5.11 there is no wait with a timeout: such rings are left alone.
            return Err(Errno::NOSYS.into());
        }
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let ops = Box::new(std::array::from_fn(|code| probe.is_supported(code as u8)));
        Ok(Ring {
            ring,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth as u32).rev().collect(),
            ops,
            core: core.clone(),
            flush: 1,
            queued: false,
            cold: false,
            deferred,
            broken: false,
            seen: 0,
            mark: 0,
            wake: Arc::new(eventfd(EventfdFlags::empty())?),
            wake_count: Box::new([0; 8]),
            wake_armed: false,
            takes_signals: false,
            ask_again: None,
        })
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
        !self.broken && self.ops[kind.opcode() as usize] && kind.fits_ring()
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
    pub(crate) fn push(&mut self, parcel: Parcel) -> Option<Parcel> {
        let Some(index) = self.free.pop() else {
            return Some(parcel);
        };
        self.slots[index as usize].parcel = Some(parcel);
        self.prepare(index);
        None
    }

    /// Puts the entry of a slot's operation into the submission queue.
    fn prepare(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.flush = self.flush;
        self.queued = true;
        let Some(parcel) = &mut slot.parcel else {
            return;
        };
        let signals = self.takes_signals && parcel.op.kind.may_signal(self.core.size_limited);
        let mut entry = parcel.op.kind.sqe().user_data(u64::from(index));
        if signals {
            entry = entry.flags(squeue::Flags::ASYNC);
        }
        self.enqueue(&entry);
    }

    fn enqueue(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: Assumption: whatever the entry points to is owned by a parcel in a slot of
            // `self.slots`, or by `self`, and neither moves, is touched or is freed until the
            // entry's completion is consumed. Slots are boxed and never reallocated; `Drop`
            // leaks them if the kernel does not let go in time.
            if unsafe { self.ring.submission().push(entry) }.is_ok() || !self.enter(ENTRIES) {
                return;
            }
        }
    }

    /// Gives everything queued to the kernel, and marks what was done at once. `out` gets what was
    /// there before.
    pub(crate) fn flush(&mut self, out: &mut impl FnMut(Out)) {
        if self.queued {
            self.drain(out);
            self.queued = false;
            let all = self.ring.submission().len();
            let piece = if self.cold { PIECE } else { all };
            while !self.ring.submission().is_empty() {
                if !self.enter(piece) {
                    return self.give_up(out);
                }
            }
            let inline = self.ring.completion().len();
            self.mark = self.seen + inline as u64;
            self.flush += 1;
            self.cold = self.deferred && inline < all;
        }
    }

    /// One io_uring_enter(2) that submits at most so many entries and does not wait. Says whether the ring still works: a
    /// sandbox put on later may deny the call.
    fn enter(&mut self, at_most: usize) -> bool {
        while !self.broken {
            let entries = self.ring.submission().len().min(at_most) as u32;
            // SAFETY: Assumption: the entries in the queue are as `enqueue` says.
            let entered = unsafe { self.ring.submitter().enter::<()>(entries, 0, 0, None) };
            match entered {
                Ok(_) => return true,
                Err(e) => match e.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // Out of memory for requests, or completions to be consumed first. The
                    // entries stay queued: let others run, try again.
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                    _ => self.broken = true,
                },
            }
        }
        false
    }

    /// The ring is never entered again, so what the kernel has not taken, workers may have.
    fn give_up(&mut self, out: &mut impl FnMut(Out)) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let untaken = slot.flush == self.flush;
            if let Some(parcel) = slot.parcel.take_if(|_| untaken) {
                self.free.push(index as u32);
                out(Out::Worker(parcel));
            }
        }
        self.flush += 1;
    }

    /// Consumes what is in the completion queue.
    pub(crate) fn drain(&mut self, out: &mut impl FnMut(Out)) {
        loop {
            let Some(entry) = self.ring.completion().next() else {
                break;
            };
            self.seen += 1;
            match entry.user_data() {
                WAKE => self.wake_armed = false,
                CANCEL => {}
                index => self.complete(index as u32, entry.result(), out),
            }
        }
    }

    fn complete(&mut self, index: u32, result: i32, out: &mut impl FnMut(Out)) {
        let slot = &mut self.slots[index as usize];
        let inline = self.seen <= self.mark && slot.flush + 1 == self.flush;
        let Some(parcel) = &mut slot.parcel else {
            return;
        };
        let result = if result < 0 {
            Err(Errno::from_raw_os_error(-result))
        } else {
            Ok(result as usize)
        };
        match result {
            // A signal met one of the kernel's own workers; nobody asked for a stop.
            Err(Errno::INTR) if parcel.stopped.is_none() && parcel.op.kind.may_repeat() => {
                return self.prepare(index);
            }
            // The ring would have to wait and has no way to: a worker has.
            Err(Errno::AGAIN) if parcel.op.kind.may_block() => {
                if let Some(parcel) = self.release(index) {
                    out(Out::Worker(parcel));
                }
                return;
            }
            Ok(n) => {
                if inline {
                    self.core.counters.count(Count::RingHits);
                }
                parcel.arrived(n, inline);
            }
            Err(_) => {}
        }
        match parcel.op.kind.settle(result) {
            Step::Again if parcel.stopped.is_none() => self.prepare(index),
            Step::Again => {
                let _ = parcel.op.kind.settle(Err(Errno::CANCELED));
                self.done(index, Err(Errno::CANCELED), out);
            }
            Step::Done(result) => self.done(index, result, out),
        }
    }

    fn done(&mut self, index: u32, result: Result<usize, Errno>, out: &mut impl FnMut(Out)) {
        if let Some(parcel) = self.release(index) {
            let (reply, completion) = parcel.finish(&self.core, result, ServedBy::Ring);
            out(Out::Done(reply, completion));
        }
    }

    fn release(&mut self, index: u32) -> Option<Parcel> {
        self.free.push(index);
        self.slots[index as usize].parcel.take()
    }

    /// Asks the kernel to stop an operation; its completion tells whether it did.
    pub(crate) fn cancel(&mut self, ticket: Ticket, why: ErrorKind) -> bool {
        let held = self.slots.iter_mut().find_map(|slot| {
            let parcel = slot.parcel.as_mut().filter(|p| p.ticket == ticket)?;
            parcel.stopped = Some(why);
            Some(())
        });
        if held.is_some() {
            self.ask_to_stop();
            self.ask_again = Some((Instant::now() + FIRST_PAUSE, FIRST_PAUSE));
        }
        held.is_some()
    }

    fn cancel_all(&mut self) {
        for parcel in self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.parcel.as_mut())
        {
            parcel.stopped = Some(ErrorKind::Cancelled);
        }
        self.ask_to_stop();
    }

    /// Asks for every operation that somebody wants stopped; says whether there is one.
    fn ask_to_stop(&mut self) -> bool {
        let mut asked = false;
        for index in 0..self.slots.len() {
            let parcel = self.slots[index].parcel.as_ref();
            if parcel.is_some_and(|p| p.stopped.is_some()) {
                self.enqueue(
                    &opcode::AsyncCancel::new(index as u64)
                        .build()
                        .user_data(CANCEL),
                );
                self.queued = true;
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

    /// Sleeps until completions are there, somebody wakes the ring, or the time is up. Deferred
    /// completions are delivered here and nowhere else. Submits no operation, consumes nothing.
    pub(crate) fn wait(&mut self, at_least: usize, timeout: Option<Duration>) {
        self.arm_wake();
        let again = self
            .ask_again
            .map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let soonest = match (timeout, again) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.sleep(at_least, soonest);
        self.ask_to_stop_again();
    }

    /// Delivers all deferred completions. One call delivers a few (20 on recent kernels) and leaves the
    /// rest, of which the kernel signals nothing more to a registered eventfd.
    pub(crate) fn deliver(&mut self) {
        const AT_ONCE: usize = 16;
        // The flag may be left over from what is delivered already: the count ends that.
        for _ in 0..self.held() / AT_ONCE + 2 {
            self.wait(0, Some(Duration::ZERO));
            if !self.ring.submission().taskrun() {
                break;
            }
        }
    }

    fn sleep(&mut self, at_least: usize, timeout: Option<Duration>) {
        let want = if timeout == Some(Duration::ZERO) {
            0
        } else {
            at_least.max(1)
        };
        let timespec = types::Timespec::from(timeout.unwrap_or_default());
        let args = match timeout {
            Some(_) => types::SubmitArgs::new().timespec(&timespec),
            None => types::SubmitArgs::new(),
        };
        // Operations are submitted by `flush` alone; here at most the wake-up's own read is.
        let entries = if self.queued {
            0
        } else {
            self.ring.submission().len() as u32
        };
        let flags = io_uring::EnterFlags::EXT_ARG | io_uring::EnterFlags::GETEVENTS;
        // SAFETY: Assumption: the entries in the queue are as `enqueue` says, and `args` and what
        // it points to live through the call.
        let entered = unsafe {
            self.ring
                .submitter()
                .enter(entries, want as u32, flags.bits(), Some(&args))
        };
        let denied = [libc::EPERM, libc::ENOSYS, libc::EACCES];
        if entered.is_err_and(|e| e.raw_os_error().is_some_and(|e| denied.contains(&e))) {
            // Only workers are left, and they write to the eventfd.
            self.broken = true;
            let mut poll = [rustix::event::PollFd::new(
                &*self.wake,
                rustix::event::PollFlags::IN,
            )];
            let timeout = timeout.and_then(|t| rustix::time::Timespec::try_from(t).ok());
            // The eventfd blocks: it is read only when there is something.
            if rustix::event::poll(&mut poll, timeout.as_ref()) == Ok(1) {
                let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
            }
        }
        // ETIME, EINTR and EBUSY all mean "look what is there".
    }

    /// Has the ring read its eventfd, so that a write to it ends `wait`.
    fn arm_wake(&mut self) {
        if !self.wake_armed {
            self.wake_armed = true;
            let fd = types::Fd(self.wake.as_raw_fd());
            let entry = opcode::Read::new(fd, self.wake_count.as_mut_ptr(), 8).build();
            self.enqueue(&entry.user_data(WAKE));
        }
    }

    /// Has the kernel signal this eventfd at every completion.
    pub(crate) fn register_event(&self, event: BorrowedFd<'_>) -> std::io::Result<()> {
        self.ring.submitter().register_eventfd(event.as_raw_fd())
    }

    /// How many completions are there to be consumed.
    pub(crate) fn ready(&mut self) -> usize {
        self.ring.completion().len()
    }

    /// Gives up in a forked child, where ring and memory are the parent's: touches nothing.
    pub(crate) fn forget(self) {
        std::mem::forget(self);
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor lives as long as the ring.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

/// How long a dropped ring waits for operations that the kernel has been asked to stop.
const GRACE: Duration = Duration::from_secs(1);

impl Drop for Ring {
    fn drop(&mut self) {
        self.cancel_all();
        if self.wake_armed {
            // Its read would outlive us otherwise.
            self.enqueue(&opcode::AsyncCancel::new(WAKE).build().user_data(CANCEL));
        }
        let end = Instant::now() + GRACE;
        while (self.held() > 0 || self.wake_armed) && Instant::now() < end {
            self.flush(&mut |_| {});
            self.sleep(1, Some(Duration::from_millis(10)));
            self.drain(&mut |_| {});
        }
        if self.held() > 0 || self.wake_armed {
            // A device that hangs holds them: what the kernel may still write to is never freed.
            std::mem::forget(std::mem::take(&mut self.slots));
            std::mem::forget(std::mem::take(&mut self.wake_count));
        }
    }
}
