//! Waiting for requests, and waking the threads that wait: one futex word for all.
//!
//! ```text
//!   waiting thread:     set bit 0 ─ read the blocks ─ none done? ─ sleep while the word is unchanged
//!   completing thread:  mark blocks as done ─ add 2 to the word ─ bit 0 was set? ─ clear it, wake all
//! ```
//! A thread that reads the blocks after it set bit 0 either sees that a block is done or is woken.
//! There is no count of sleeping threads, so a thread that is cancelled in its sleep leaves nothing
//! behind.
//!
//! # Signals
//! A signal handler ends a wait, also a handler with SA_RESTART: aio_suspend(3) waits "until a
//! signal interrupts the function". There is one exception, for programs that are notified by
//! signals with SA_RESTART: every request would end their wait for another one. The wait goes on if
//! such a signal was sent since the wait began or was last interrupted.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use rustix::io::Errno;

use crate::sys::clock;
use crate::sys::futex::{self, NEVER};
use crate::sys::signal;

/// Bit 0: a thread waits. The other bits count calls of [`wake_all`].
static WORD: AtomicU32 = AtomicU32::new(0);
const HAS_WAITERS: u32 = 1;

/// Wakes all waiting threads, after the state of blocks has changed. Async-signal-safe.
pub fn wake_all() {
    if WORD.fetch_add(2, Ordering::SeqCst) & HAS_WAITERS != 0 {
        WORD.fetch_and(!HAS_WAITERS, Ordering::SeqCst);
        futex::wake_all(&WORD);
    }
}

/// Notification signals that were sent or are being sent.
static SIGNALS_BEGUN: AtomicU32 = AtomicU32::new(0);
/// Notification signals that were sent.
static SIGNALS_SENT: AtomicU32 = AtomicU32::new(0);
static LAST_SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Runs `send`, which sends this signal as a notification, and counts the signal.
/// Async-signal-safe.
pub fn count_signal<E>(signo: c_int, send: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    LAST_SIGNAL.store(signo, Ordering::SeqCst);
    SIGNALS_BEGUN.fetch_add(1, Ordering::SeqCst);
    let result = send();
    match result {
        Ok(()) => SIGNALS_SENT.fetch_add(1, Ordering::SeqCst),
        Err(_) => SIGNALS_BEGUN.fetch_sub(1, Ordering::SeqCst),
    };
    result
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// The condition holds.
    Ready,
    /// A signal handler ran.
    Interrupted,
    /// The deadline has passed.
    TimedOut,
}

/// Waits until `is_ready` returns true, a signal handler has run, or the deadline has passed.
///
/// `sleep` sleeps on the word: [`sleep`], or a function that is also a cancellation point. No frame
/// here has a destructor, so a cancelled thread can unwind through it.
pub fn until(
    is_ready: impl Fn() -> bool,
    deadline: &libc::timespec,
    sleep: extern "C-unwind" fn(&AtomicU32, u32, &libc::timespec) -> c_int,
) -> Wakeup {
    let mut sent = SIGNALS_SENT.load(Ordering::SeqCst);
    loop {
        let word = WORD.fetch_or(HAS_WAITERS, Ordering::SeqCst) | HAS_WAITERS;
        if is_ready() {
            return Wakeup::Ready;
        }
        match sleep(&WORD, word, deadline) {
            libc::EINTR => {
                let by_notification = SIGNALS_BEGUN.load(Ordering::SeqCst) != sent;
                if !by_notification || !signal::has_sa_restart(LAST_SIGNAL.load(Ordering::SeqCst)) {
                    return Wakeup::Interrupted;
                }
                sent = SIGNALS_SENT.load(Ordering::SeqCst);
            }
            libc::ETIMEDOUT => return Wakeup::TimedOut,
            // The word has changed, or this is a wake-up.
            _ => {}
        }
    }
}

/// Waits until `is_ready` returns true, through all signal handlers. For conditions that hold soon.
pub fn uninterrupted(is_ready: impl Fn() -> bool) {
    while until(&is_ready, &NEVER, sleep) == Wakeup::Interrupted {}
}

/// Sleeps on the word. Not a cancellation point.
pub extern "C-unwind" fn sleep(word: &AtomicU32, value: u32, deadline: &libc::timespec) -> c_int {
    futex::wait(word, value, deadline)
}

/// The moment that comes after this time. EINVAL for a time that is negative or not normalised.
pub fn deadline_after(timeout: &libc::timespec) -> Result<libc::timespec, Errno> {
    const SECOND: i64 = 1_000_000_000;
    if timeout.tv_sec < 0 || !(0..SECOND).contains(&timeout.tv_nsec) {
        return Err(Errno::INVAL);
    }
    let now = clock::monotonic();
    let nanoseconds = now.tv_nsec + timeout.tv_nsec;
    Ok(libc::timespec {
        tv_sec: now
            .tv_sec
            .saturating_add(timeout.tv_sec)
            .saturating_add(nanoseconds / SECOND),
        tv_nsec: nanoseconds % SECOND,
    })
}
