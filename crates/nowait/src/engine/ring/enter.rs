//! io_uring_enter(2), the only system call that drives a ring. It submits, waits, and has deferred
//! completions delivered. A sandbox that is set up after the ring may deny it.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::{EnterFlags, opcode, types};
use rustix::event::{PollFd, PollFlags};

use super::setup::descriptor;
use super::{Modes, Ring, WAKE, WaitFor};
use crate::sys::cast::to_u32;
use crate::sys::{self, Errno};

/// The number of attempts to submit while the kernel returns EAGAIN, EBUSY or ENOMEM, and the pause
/// between two attempts. Queued operations are left to workers after that.
const MAX_RETRIES: usize = 2_000;
const RETRY_INTERVAL: Duration = Duration::from_micros(100);

/// The interval at which the thread of a broken ring looks for completions and messages.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Ring {
    /// Calls io_uring_enter(2), by the registered number of the ring if it has one.
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
        // SAFETY: Assumption: the queued entries are as stated in `enqueue`. `args` and the memory
        // that it points to are valid during the call.
        let entered = unsafe { sys::ring::enter(ring, to_submit, at_least, flags.bits(), args) };
        if !self.modes.contains(Modes::SQPOLL) {
            self.submission.taken += entered.unwrap_or(0) as u64;
        }
        entered
    }

    /// Calls io_uring_enter(2) once to submit at most `at_most` entries, without waiting for
    /// completions. With SQPOLL it waits until the kernel thread has made room in the queue.
    /// Returns false if the ring no longer works, for example because a sandbox denies the call.
    pub(super) fn enter(&mut self, at_most: usize) -> bool {
        let mut refused = 0;
        while !self.modes.contains(Modes::BROKEN) {
            let (entries, mut flags) = if self.modes.contains(Modes::SQPOLL) {
                (0, EnterFlags::SQ_WAIT | self.waker_flag())
            } else {
                let entries = self.ring.submission().len().min(at_most);
                (to_u32(entries), EnterFlags::empty())
            };
            if refused > 0 {
                // Delivers completions that found no room in the queue.
                flags |= EnterFlags::GETEVENTS;
            }
            match self.call(entries, 0, flags, None) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                // The kernel has no memory for requests, or completions must be consumed first. The
                // entries stay queued for the next attempt.
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) if refused < MAX_RETRIES => {
                    refused += 1;
                    self.move_to_overflow();
                    std::thread::sleep(RETRY_INTERVAL);
                }
                Err(errno) => self.note_refusal(errno),
            }
        }
        false
    }

    /// Makes room for completions that the kernel still holds. Completions from now on do not count
    /// as immediate.
    fn move_to_overflow(&mut self) {
        self.completion.delivered_in_retry = true;
        let queue = self.ring.completion();
        self.completion
            .overflow
            .extend(queue.map(|entry| (entry.user_data(), entry.result())));
    }

    /// Stops submitting. Operations that the kernel has taken still complete.
    fn note_refusal(&mut self, errno: Errno) {
        self.modes |= Modes::BROKEN;
        if !matches!(errno, Errno::AGAIN | Errno::BUSY | Errno::NOMEM) {
            self.modes |= Modes::DENIED;
        }
    }

    /// The flag that wakes the kernel thread, if it sleeps. `IORING_SQ_NEED_WAKEUP` is read after
    /// the tail is published and a full fence. The kernel has a full fence between setting its flag
    /// and its last look at the queue.
    fn waker_flag(&mut self) -> EnterFlags {
        if self.modes.contains(Modes::SQPOLL) && self.ring.submission().need_wakeup() {
            EnterFlags::SQ_WAKEUP
        } else {
            EnterFlags::empty()
        }
    }

    /// Wakes the kernel thread, if it sleeps. If a sandbox denies that, queued entries wait until
    /// another event wakes the thread. Workers cannot do them, because the thread may take them at
    /// any time.
    pub(super) fn wake_kernel_thread(&mut self) {
        let mut refused = 0;
        while !self.modes.contains(Modes::BROKEN) && !self.waker_flag().is_empty() {
            match self.call(0, 0, EnterFlags::SQ_WAKEUP, None) {
                Ok(_) => return,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::BUSY) if refused < MAX_RETRIES => {
                    refused += 1;
                    std::thread::sleep(RETRY_INTERVAL);
                }
                Err(errno) => self.note_refusal(errno),
            }
        }
    }

    /// Sleeps until there are completions, another thread wakes the ring, or the time is up. This
    /// is the only call that delivers deferred completions. It submits no operation and consumes
    /// nothing.
    ///
    /// A polling ring does not sleep while it holds operations, and may return early.
    pub(crate) fn wait(&mut self, until: WaitFor, timeout: Option<Duration>) {
        self.arm_wake();
        let again = self
            .cancel_again
            .map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let soonest = match (timeout, again) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.sleep(until, soonest);
        self.repeat_cancels();
    }

    /// Delivers all deferred completions. One call delivers a limited number (20 on recent
    /// kernels). The kernel does not signal the rest to a registered eventfd.
    pub(crate) fn deliver(&mut self) {
        const AT_ONCE: usize = 16;
        // The flag may be stale after everything was delivered, so the number of calls is limited.
        for _ in 0..self.held() / AT_ONCE + 2 {
            self.wait(WaitFor::count(0), Some(Duration::ZERO));
            if !self.ring.submission().taskrun() {
                break;
            }
        }
    }

    pub(super) fn sleep(&mut self, until: WaitFor, timeout: Option<Duration>) {
        if self.modes.contains(Modes::DENIED)
            || (self.modes.contains(Modes::BROKEN) && !self.modes.contains(Modes::POLLED))
        {
            return self.sleep_outside(timeout);
        }
        if self.modes.contains(Modes::POLLED) {
            return self.poll_device(until.min_complete, timeout);
        }
        let want = if timeout == Some(Duration::ZERO) {
            0
        } else {
            until.min_complete.min(self.held()).max(1)
        };
        let timespec = types::Timespec::from(timeout.unwrap_or_default());
        let mut args = match timeout {
            Some(_) => types::SubmitArgs::new().timespec(&timespec),
            None => types::SubmitArgs::new(),
        };
        // The kernel does not check the timeout before the minimum wait is over.
        if let Some(min_wait) = until.min_wait.filter(|w| timeout.is_none_or(|t| t >= *w)) {
            let us = u32::try_from(min_wait.as_micros()).unwrap_or(u32::MAX);
            args = args.min_wait_usec(us.max(1));
        }
        // Only `flush` submits operations. The only entry submitted here is the read of the
        // eventfd.
        let entries = if self.submission.queued {
            0
        } else {
            to_u32(self.ring.submission().len())
        };
        let flags = EnterFlags::EXT_ARG | EnterFlags::GETEVENTS | self.waker_flag();
        let entered = self.call(entries, to_u32(want), flags, Some(&args));
        if let Err(Errno::PERM | Errno::NOSYS | Errno::ACCESS) = entered {
            // Only workers are left. They write to the eventfd.
            self.modes |= Modes::BROKEN | Modes::DENIED;
            self.sleep_outside(timeout);
        }
        // ETIME, EINTR and EBUSY all mean that the caller should look for completions.
    }

    /// Polls the device for completions. A call with a `min_complete` above 0 polls until that many
    /// operations complete. It ignores the timeout. Only a wait without a timeout makes such a
    /// call.
    fn poll_device(&mut self, at_least: usize, timeout: Option<Duration>) {
        if self.held() == 0 {
            return self.sleep_outside(timeout);
        }
        let want = if timeout.is_none() { at_least } else { 0 };
        let flags = EnterFlags::GETEVENTS | self.waker_flag();
        let polled = self.call(0, to_u32(want.min(self.held())), flags, None);
        if let Err(Errno::PERM | Errno::NOSYS | Errno::ACCESS) = polled {
            self.modes |= Modes::BROKEN | Modes::DENIED;
            self.sleep_outside(timeout);
        }
    }

    /// Sleeps until the eventfd is written to, the ring has completions, or the time is up, without
    /// entering the ring. May return early if the ring is broken.
    fn sleep_outside(&mut self, timeout: Option<Duration>) {
        // If the ring's own read of the eventfd is still at the kernel, it consumes what is
        // written.
        let timeout = match timeout {
            Some(timeout) if !self.modes.contains(Modes::BROKEN) || timeout < POLL_INTERVAL => {
                Some(timeout)
            }
            None if !self.modes.contains(Modes::BROKEN) => None,
            _ => Some(POLL_INTERVAL),
        };
        let timeout = timeout.and_then(|t| rustix::time::Timespec::try_from(t).ok());
        let ring = descriptor(&self.ring);
        let mut both = [
            PollFd::new(&*self.wake.event, PollFlags::IN),
            PollFd::from_borrowed_fd(ring, PollFlags::IN),
        ];
        // Deferred completions of a ring that cannot be entered are never delivered. The descriptor
        // would always be readable.
        let looks = if self.modes.contains(Modes::DENIED) && self.modes.contains(Modes::DEFERRED) {
            1
        } else {
            2
        };
        let there = rustix::event::poll(&mut both[..looks], timeout.as_ref()).unwrap_or(0) > 0;
        // The eventfd blocks, so it is read only when it is readable.
        if there && !both[0].revents().is_empty() {
            let _ = rustix::io::read(&*self.wake.event, &mut [0u8; 8]);
        }
        if self.modes.contains(Modes::BROKEN) {
            // A call that was denied before may be allowed now.
            let delivered = self.call(0, 0, EnterFlags::GETEVENTS, None);
            let is_denied = delivered.is_err_and(|errno| errno != Errno::INTR);
            self.modes.set(Modes::DENIED, is_denied);
        }
    }

    /// Submits a read of the ring's eventfd, so that a write to it ends `wait`. A polling ring
    /// cannot do that.
    fn arm_wake(&mut self) {
        if !self.wake.is_armed
            && !self.modes.contains(Modes::POLLED)
            && !self.modes.contains(Modes::BROKEN)
        {
            let fd = types::Fd(self.wake.event.as_raw_fd());
            let entry = opcode::Read::new(fd, self.wake.count.as_mut_ptr(), 8).build();
            self.wake.is_armed = self.enqueue_own(&entry.user_data(WAKE));
        }
    }
}
