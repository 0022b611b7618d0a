//! Waiting for requests, and waking who waits: one futex word for all.
//!
//! ```text
//!   who waits:  set bit 0 ─ look at the blocks ─ none done? ─ sleep while the word is as it was
//!   who is done: blocks say done ─ add 2 to the word ─ bit 0 was set? ─ clear it, wake all
//! ```
//! Whoever looks after setting the bit either sees the block done or is woken. No count of sleepers is
//! kept, so that a thread that is cancelled in its sleep leaves nothing behind.
//!
//! A signal handler ends a wait, also one with SA_RESTART: aio_suspend(3) waits "until a signal interrupts
//! the function". But a program whose requests tell of themselves by signals with SA_RESTART could not
//! count on any wait for several, so an interruption is let pass if such a signal was sent since the last
//! one, or since the wait began.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use rustix::io::Errno;

use crate::sys::clock;
use crate::sys::futex::{self, NEVER};
use crate::sys::signal;

static NEWS: AtomicU32 = AtomicU32::new(0);
const SOMEBODY_WAITS: u32 = 1;

/// Blocks have become done. Async-signal-safe.
pub fn announce() {
    if NEWS.fetch_add(2, Ordering::SeqCst) & SOMEBODY_WAITS != 0 {
        NEWS.fetch_and(!SOMEBODY_WAITS, Ordering::SeqCst);
        futex::wake_all(&NEWS);
    }
}

/// Signals that tell of requests: how many are sent or being sent, how many are sent, and which was last.
static BEGUN: AtomicU32 = AtomicU32::new(0);
static SENT: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicI32 = AtomicI32::new(0);

/// Tells of a request by this signal. Async-signal-safe.
pub fn telling<E>(signo: c_int, send: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    LAST.store(signo, Ordering::SeqCst);
    BEGUN.fetch_add(1, Ordering::SeqCst);
    let sent = send();
    match sent {
        Ok(()) => SENT.fetch_add(1, Ordering::SeqCst),
        Err(_) => BEGUN.fetch_sub(1, Ordering::SeqCst),
    };
    sent
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// What was waited for is there.
    Ready,
    /// A signal handler ran.
    Interrupted,
    /// The time is up.
    Late,
}

/// Waits until `ready` says so, a signal handler has run, or the time has come.
///
/// `sleep` is how to sleep on the word: `futex_wait`, or the same as a cancellation point. No frame
/// here has a destructor, so that a cancelled thread unwinds through it.
pub fn until(
    ready: impl Fn() -> bool,
    end: &libc::timespec,
    sleep: extern "C-unwind" fn(&AtomicU32, u32, &libc::timespec) -> i32,
) -> Woken {
    let mut sent = SENT.load(Ordering::SeqCst);
    loop {
        let seen = NEWS.fetch_or(SOMEBODY_WAITS, Ordering::SeqCst) | SOMEBODY_WAITS;
        if ready() {
            return Woken::Ready;
        }
        match sleep(&NEWS, seen, end) {
            libc::EINTR => {
                let told = BEGUN.load(Ordering::SeqCst) != sent;
                if !told || !signal::has_sa_restart(LAST.load(Ordering::SeqCst)) {
                    return Woken::Interrupted;
                }
                sent = SENT.load(Ordering::SeqCst);
            }
            libc::ETIMEDOUT => return Woken::Late,
            // The word has moved on, or it was a wake-up.
            _ => {}
        }
    }
}

/// Waits until `ready` says so, whatever signals come. For what is about to be.
pub fn briefly(ready: impl Fn() -> bool) {
    while until(&ready, &NEVER, plain) == Woken::Interrupted {}
}

/// The ordinary sleep.
pub extern "C-unwind" fn plain(word: &AtomicU32, value: u32, end: &libc::timespec) -> i32 {
    futex::wait(word, value, end)
}

/// The moment that lies this far ahead. EINVAL for what is no length of time.
pub fn from_now(timeout: &libc::timespec) -> Result<libc::timespec, Errno> {
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
