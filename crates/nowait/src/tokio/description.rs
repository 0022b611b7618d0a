//! An open file description (open(2)), shared by a file's clones. It orders the calls at the file's
//! position.
//!
//! The kernel keeps the position of a regular file. It locks the position during each call that
//! uses it, also while that call waits for the device. A calling thread that must not block
//! therefore does not use the position during such a call. Invariant: the calling thread uses the
//! position only while no call of the file's clones is queued or running, and only with calls that
//! do not wait. Workers make all other calls, one at a time, in the order of their submission.
//!
//! Other holders of the description are unknown: a child process, or a duplicate of the descriptor.
//! A try that has waited for such a holder's lock is noticed by its duration. From then on all
//! calls go to workers. They do so permanently, unless the first of them finds the lock free. While no other
//! holder is known to be possible, one try in 16 is timed.
//!
//! A description is *private* if no other holder is possible: this library has opened the file, its
//! descriptor was not given out, and there is no clone. Then a read need not lock the position: it
//! is made at the offset, by a ring if there is one, and the position is moved afterwards.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use rustix::fs::SeekFrom;

use super::error::as_io;
use super::transfer::{Ended, Transfer};
use crate::engine::{Engine, OpState, Reserved};
use crate::handle::Handle;
use crate::op::{Call, Op};
use crate::sys::sync::{Mutex, lock};

/// The description that all clones of a file share.
#[derive(Debug)]
pub(super) struct Description {
    handle: Handle,
    /// Callers share the lock during a try. A worker holds it exclusively during a call.
    position: RwLock<()>,
    /// The number of calls that are queued or running. It is changed only under the lock of
    /// `queued`.
    asked: AtomicUsize,
    /// The calls that wait for the running one.
    queued: Mutex<VecDeque<Queued>>,
    pace: AtomicU8,
    /// Others may hold the description.
    is_given_out: AtomicBool,
    /// The number of tries while the description was private, modulo 256.
    private_tries: AtomicU8,
}

#[derive(Debug)]
struct Queued {
    engine: Engine,
    call: Op,
    in_flight: Arc<OpState>,
}

/// All tries so far were short.
const QUICK: u8 = 0;
/// A try was long. A worker will find out if it waited for the position lock.
const SUSPECTED: u8 = 1;
/// Another holder keeps the position lock for a long time.
const SLOW: u8 = 2;

/// A longer try has waited for something: the position lock, a processor, or a device that was slow
/// to accept a readahead.
const LONG: Duration = Duration::from_millis(1);

/// One try in this many is timed while the description is private.
const TIMED: u8 = 16;

/// A file and its stream hold the description.
const HOLDERS: usize = 2;

impl Description {
    /// The description of a file. `is_given_out` is false if no other holder is possible.
    pub(super) fn new(handle: Handle, is_given_out: bool) -> Description {
        Description {
            handle,
            position: RwLock::new(()),
            asked: AtomicUsize::new(0),
            queued: Mutex::default(),
            pace: AtomicU8::new(QUICK),
            is_given_out: AtomicBool::new(is_given_out),
            private_tries: AtomicU8::new(0),
        }
    }

    /// Notes that others may hold the description from now on.
    pub(super) fn give_out(&self) {
        // Not stored each time: the threads of the clones share the memory.
        if !self.is_given_out.load(Ordering::Relaxed) {
            self.is_given_out.store(true, Ordering::Relaxed);
        }
        // A regular file is read and written in the same way if this fails.
        let _ = self.handle.clear_nonblocking();
    }

    fn is_private(self: &Arc<Description>) -> bool {
        Arc::strong_count(self) == HOLDERS && !self.is_given_out.load(Ordering::Relaxed)
    }

    /// The position, if the description is private and a ring can read the file.
    pub(super) fn private_position_for_ring(self: &Arc<Description>) -> Option<u64> {
        let fits = self.handle.is_regular()
            && self.handle.supports_nowait_read()
            && self.handle.bounce_alignment().is_none();
        match fits {
            true => self.private_position(),
            false => None,
        }
    }

    /// The position, if the description is private.
    pub(super) fn private_position(self: &Arc<Description>) -> Option<u64> {
        if !self.is_private() {
            return None;
        }
        // A try that took long has not waited for another holder.
        self.pace.store(QUICK, Ordering::Relaxed);
        rustix::fs::tell(&self.handle).ok()
    }

    /// Moves the position after a read of `n` bytes at `at`, where it was. If the descriptor was
    /// given out meanwhile, it moves only a position that no other holder has moved. A forked child
    /// moves none. Returns true if it was moved.
    pub(super) fn advance(&self, engine: &Engine, at: u64, n: usize) -> std::io::Result<bool> {
        let is_ours =
            !self.is_given_out.load(Ordering::Relaxed) || rustix::fs::tell(&self.handle) == Ok(at);
        let moves = n > 0 && is_ours && engine.check_process("read").is_ok();
        if moves {
            rustix::fs::seek(&self.handle, SeekFrom::Start(at + n as u64))?;
        }
        Ok(moves)
    }

    /// Makes a call that does not wait for a device, unless the position lock is known or suspected
    /// to be held.
    #[inline]
    pub(super) fn at_once<T>(
        self: &Arc<Description>,
        engine: &Engine,
        call: impl FnOnce() -> T,
    ) -> Option<T> {
        // In a forked child no worker could make the call.
        let quick =
            self.pace.load(Ordering::Relaxed) == QUICK || engine.check_process("try").is_err();
        if self.asked.load(Ordering::Acquire) > 0 || !quick {
            return None;
        }
        if self.is_private() {
            // Only a forked child may hold the position lock. A timed try notices it.
            let tries = self.private_tries.load(Ordering::Relaxed);
            self.private_tries
                .store(tries.wrapping_add(1), Ordering::Relaxed);
            if !tries.is_multiple_of(TIMED) {
                return Some(call());
            }
        }
        self.at_once_timed(call)
    }

    #[inline(never)]
    fn at_once_timed<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        let _shared = self.position.try_read().ok()?;
        let begun = Instant::now();
        let made = call();
        if begun.elapsed() > LONG {
            self.pace.store(SUSPECTED, Ordering::Relaxed);
        }
        Some(made)
    }

    /// Submits a call to a worker, to run after all calls submitted before.
    pub(super) fn ask(
        self: &Arc<Description>,
        engine: &Engine,
        transfer: Transfer,
        reserved: Reserved<'_>,
    ) -> Asked {
        let in_flight = reserved.used();
        let ended = Arc::new(Mutex::new(None));
        let to = ended.clone();
        // For other file types the kernel locks no position. A read that waits must not hold up the
        // write that it waits for.
        let turn = self.handle.is_regular().then(|| Turn(self.clone()));
        let asked = Asked {
            in_flight: in_flight.clone(),
            ended,
            unmade: transfer.unmade(),
        };
        let handle = self.handle.clone();
        let ordered = turn.is_some();
        let call = Call::new(move || {
            let ended = match &turn {
                Some(Turn(description)) => description.make(transfer),
                None => transfer.make(&handle),
            };
            *lock(&to) = Some(ended);
            Ok(0)
        });
        let call = Op::from(call.transferring(&self.handle));
        if ordered {
            let mut queued = lock(&self.queued);
            if self.asked.fetch_add(1, Ordering::AcqRel) > 0 {
                queued.push_back(Queued {
                    engine: engine.clone(),
                    call,
                    in_flight,
                });
                return asked;
            }
        }
        engine.launch_with_state(call, in_flight);
        asked
    }

    fn make(&self, transfer: Transfer) -> Ended {
        let _alone = self.position.write().unwrap_or_else(|e| e.into_inner());
        if self.pace.load(Ordering::Relaxed) == SUSPECTED {
            let begun = Instant::now();
            // Takes the position lock and does nothing else.
            let _ = rustix::fs::tell(&self.handle);
            let found = if begun.elapsed() > LONG { SLOW } else { QUICK };
            self.pace.store(found, Ordering::Relaxed);
        }
        transfer.make(&self.handle)
    }
}

/// The right of one call to run. Dropping it starts the next call, even if this one was never made.
struct Turn(Arc<Description>);

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut queued = lock(&self.0.queued);
            self.0.asked.fetch_sub(1, Ordering::AcqRel);
            queued.pop_front()
        };
        if let Some(Queued {
            engine,
            call,
            in_flight,
        }) = next
        {
            engine.launch_with_state(call, in_flight);
        }
    }
}

/// A submitted call.
#[derive(Debug)]
pub(super) struct Asked {
    in_flight: Arc<OpState>,
    ended: Arc<Mutex<Option<Ended>>>,
    unmade: fn(std::io::Error) -> Ended,
}

impl Asked {
    /// Waits until the call has ended.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<Ended> {
        let done = ready!(self.in_flight.poll(cx));
        let made = done.result.map_err(as_io).map(|_| lock(&self.ended).take());
        // A call that has succeeded has a result.
        let made = made.and_then(|ended| ended.ok_or(std::io::ErrorKind::Other.into()));
        Poll::Ready(made.unwrap_or_else(self.unmade))
    }
}
