//! The ring's one system call, io_uring_enter(2): to submit, to wait, to have deferred completions
//! delivered; and what is done where a sandbox put on later denies it.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::{EnterFlags, opcode, types};
use rustix::event::{PollFd, PollFlags};

use super::setup::descriptor;
use super::until::Until;
use super::{Ring, WAKE};
use crate::cast::to_u32;
use crate::sys::{self, Errno};

/// How many times a submission that the kernel refuses for want of memory is tried, and the pause
/// between two tries. Then what is queued is left to workers.
const TRIES: usize = 2_000;
const PAUSE: Duration = Duration::from_micros(100);

/// How often the thread of a broken ring looks for completions and for messages.
const PATROL: Duration = Duration::from_millis(5);

impl Ring {
    /// io_uring_enter(2), by the shorter way if there is one.
    pub(super) fn call(
        &mut self,
        to_submit: u32,
        at_least: u32,
        flags: EnterFlags,
        args: Option<&types::SubmitArgs<'_, '_>>,
    ) -> Result<usize, Errno> {
        let (ring, flags) = match self.number {
            Some(number) => (number.cast_signed(), flags | EnterFlags::REGISTERED_RING),
            None => (self.ring.as_raw_fd(), flags),
        };
        // SAFETY: Assumption: the entries in the queue are as `enqueue` says, and `args` and what
        // it points to live through the call.
        let entered = unsafe { sys::ring::enter(ring, to_submit, at_least, flags.bits(), args) };
        if !self.sqpoll {
            self.taken += entered.unwrap_or(0) as u64;
        }
        entered
    }

    /// One io_uring_enter(2) that submits at most so many entries and does not wait, but for room
    /// in the queue where a thread of the kernel's empties it. Says whether the ring still works: a
    /// sandbox put on later may deny the call.
    pub(super) fn enter(&mut self, at_most: usize) -> bool {
        let mut refused = 0;
        while !self.broken {
            let (entries, mut flags) = if self.sqpoll {
                (0, EnterFlags::SQ_WAIT | self.waker_flag())
            } else {
                let entries = self.ring.submission().len().min(at_most);
                (to_u32(entries), EnterFlags::empty())
            };
            if refused > 0 {
                // Has completions delivered that found no room in the queue.
                flags |= EnterFlags::GETEVENTS;
            }
            match self.call(entries, 0, flags, None) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                // Out of memory for requests, or completions to be consumed first. The
                // entries stay queued: let others run, try again.
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) if refused < TRIES => {
                    refused += 1;
                    self.set_aside();
                    std::thread::sleep(PAUSE);
                }
                Err(errno) => self.is_refused(errno),
            }
        }
        false
    }

    /// Makes room for completions that are still with the kernel. What comes from now on was not
    /// all had at once.
    fn set_aside(&mut self) {
        self.stirred = true;
        let queue = self.ring.completion();
        self.aside
            .extend(queue.map(|entry| (entry.user_data(), entry.result())));
    }

    /// Nothing is submitted any more. What the kernel has taken, it completes.
    fn is_refused(&mut self, errno: Errno) {
        self.broken = true;
        self.denied |= !matches!(errno, Errno::AGAIN | Errno::BUSY | Errno::NOMEM);
    }

    /// What wakes the kernel's thread, if it sleeps. (The look at its flag comes after a full fence
    /// behind the entries' publication, as the kernel has one between its flag and its last look at
    /// the queue.)
    fn waker_flag(&mut self) -> EnterFlags {
        if self.sqpoll && self.ring.submission().need_wakeup() {
            EnterFlags::SQ_WAKEUP
        } else {
            EnterFlags::empty()
        }
    }

    /// Wakes the kernel's thread, if it sleeps. Where a sandbox put on later denies that, what is
    /// queued waits for whatever else wakes it: the thread may take it at any time, so that no worker
    /// may.
    pub(super) fn rouse(&mut self) {
        let mut refused = 0;
        while !self.broken && !self.waker_flag().is_empty() {
            match self.call(0, 0, EnterFlags::SQ_WAKEUP, None) {
                Ok(_) => return,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::BUSY) if refused < TRIES => {
                    refused += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(errno) => self.is_refused(errno),
            }
        }
    }

    /// Sleeps until completions are there, somebody wakes the ring, or the time is up. Deferred
    /// completions are delivered here and nowhere else. Submits no operation, consumes nothing.
    ///
    /// A ring that polls does not sleep while it holds something: it may return early.
    pub(crate) fn wait(&mut self, until: Until, timeout: Option<Duration>) {
        self.arm_wake();
        let again = self
            .ask_again
            .map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let soonest = match (timeout, again) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.sleep(until, soonest);
        self.ask_to_stop_again();
    }

    /// Delivers all deferred completions. One call delivers a few (20 on recent kernels) and leaves the
    /// rest, of which the kernel signals nothing more to a registered eventfd.
    pub(crate) fn deliver(&mut self) {
        const AT_ONCE: usize = 16;
        // The flag may be left over from what is delivered already: the count ends that.
        for _ in 0..self.held() / AT_ONCE + 2 {
            self.wait(Until::count(0), Some(Duration::ZERO));
            if !self.ring.submission().taskrun() {
                break;
            }
        }
    }

    pub(super) fn sleep(&mut self, until: Until, timeout: Option<Duration>) {
        if self.denied || (self.broken && !self.polled) {
            return self.sleep_outside(timeout);
        }
        if self.polled {
            return self.poll_device(until.count, timeout);
        }
        let want = if timeout == Some(Duration::ZERO) {
            0
        } else {
            until.count.max(1)
        };
        let timespec = types::Timespec::from(timeout.unwrap_or_default());
        let mut args = match timeout {
            Some(_) => types::SubmitArgs::new().timespec(&timespec),
            None => types::SubmitArgs::new(),
        };
        // Before that minimum is over the kernel looks at no timeout.
        if let Some(within) = until.within.filter(|w| timeout.is_none_or(|t| t >= *w)) {
            let us = u32::try_from(within.as_micros()).unwrap_or(u32::MAX);
            args = args.min_wait_usec(us.max(1));
        }
        // Operations are submitted by `flush` alone; here at most the wake-up's own read is.
        let entries = if self.queued {
            0
        } else {
            to_u32(self.ring.submission().len())
        };
        let flags = EnterFlags::EXT_ARG | EnterFlags::GETEVENTS | self.waker_flag();
        let entered = self.call(entries, to_u32(want), flags, Some(&args));
        if let Err(Errno::PERM | Errno::NOSYS | Errno::ACCESS) = entered {
            // Only workers are left, and they write to the eventfd.
            (self.broken, self.denied) = (true, true);
            self.sleep_outside(timeout);
        }
        // ETIME, EINTR and EBUSY all mean "look what is there".
    }

    /// Asks the device for completions. A call that wants some asks until they are there, whatever
    /// the time, so only a wait without end makes such a call.
    fn poll_device(&mut self, at_least: usize, timeout: Option<Duration>) {
        if self.held() == 0 {
            return self.sleep_outside(timeout);
        }
        let want = if timeout.is_none() { at_least } else { 0 };
        let flags = EnterFlags::GETEVENTS | self.waker_flag();
        let polled = self.call(0, to_u32(want.min(self.held())), flags, None);
        if let Err(Errno::PERM | Errno::NOSYS | Errno::ACCESS) = polled {
            (self.broken, self.denied) = (true, true);
            self.sleep_outside(timeout);
        }
    }

    /// Sleeps until the eventfd is written to, or the ring has completions, or the time is up, without
    /// a submission. May return early if the ring is broken.
    fn sleep_outside(&mut self, timeout: Option<Duration>) {
        // The wake-up's own read, if it is still with the kernel, takes what is written to the eventfd.
        let timeout = match timeout {
            Some(timeout) if !self.broken || timeout < PATROL => Some(timeout),
            None if !self.broken => None,
            _ => Some(PATROL),
        };
        let timeout = timeout.and_then(|t| rustix::time::Timespec::try_from(t).ok());
        let ring = descriptor(&self.ring);
        let mut both = [
            PollFd::new(&*self.wake, PollFlags::IN),
            PollFd::from_borrowed_fd(ring, PollFlags::IN),
        ];
        // Of a ring that can't be entered, deferred completions are never delivered: it would be
        // readable all the time.
        let looks = if self.denied && self.deferred { 1 } else { 2 };
        let there = rustix::event::poll(&mut both[..looks], timeout.as_ref()).unwrap_or(0) > 0;
        // The eventfd blocks: it is read only when there is something.
        if there && !both[0].revents().is_empty() {
            let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
        }
        if self.broken {
            // A call that was denied once may be allowed now.
            let delivered = self.call(0, 0, EnterFlags::GETEVENTS, None);
            self.denied = delivered.is_err_and(|errno| errno != Errno::INTR);
        }
    }

    /// Has the ring read its eventfd, so that a write to it ends `wait`. A ring that polls can't.
    fn arm_wake(&mut self) {
        if !self.wake_armed && !self.polled && !self.broken {
            let fd = types::Fd(self.wake.as_raw_fd());
            let entry = opcode::Read::new(fd, self.wake_count.as_mut_ptr(), 8).build();
            self.wake_armed = self.enqueue_own(&entry.user_data(WAKE));
        }
    }
}
