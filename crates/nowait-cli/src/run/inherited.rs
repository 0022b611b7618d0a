//! The state that a process inherits and that Rust's runtime changes before main(): the program gets it as `nowait run` got it.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each of the descriptors 0 to 2 that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// 1 if SIGPIPE was ignored.
static SIGPIPE_IGNORED: AtomicU8 = AtomicU8::new(0);

/// Runs before Rust's runtime, which opens these descriptors and ignores SIGPIPE.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

extern "C" fn record() {
    for fd in 0..3 {
        // SAFETY: this asks for the flags of a descriptor, which need not be open.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
    // SAFETY: all bytes zero are a sigaction, and sigaction(2) fills it.
    let ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    };
    SIGPIPE_IGNORED.store(u8::from(ignored), Ordering::Relaxed);
}

/// Restores the state in a child, between fork(2) and execve(2).
pub fn restore() {
    let closed = CLOSED.load(Ordering::Relaxed);
    for fd in (0..3).filter(|fd| closed & 1 << fd != 0) {
        // SAFETY: the descriptor is the one that the runtime has opened.
        unsafe { libc::close(fd) };
    }
    if SIGPIPE_IGNORED.load(Ordering::Relaxed) == 1 {
        // SAFETY: a handler is replaced by none.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    }
}
