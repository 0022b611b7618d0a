//! The state that Rust's runtime changes before main(). The program inherits it as `nowait run` has
//! inherited it.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// A bit for each of the descriptors 0 to 2 that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// SIGPIPE was ignored.
static IGNORED: AtomicBool = AtomicBool::new(false);

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
    // SAFETY: all bytes zero are an action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: sigaction(2) changes nothing, and fills the struct.
    let result = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
    if result == 0 && action.sa_sigaction == libc::SIG_IGN {
        IGNORED.store(true, Ordering::Relaxed);
    }
}

/// Makes the actions of signals and the open descriptors of the next program those that this process was started with.
pub fn restore() {
    if !IGNORED.load(Ordering::Relaxed) {
        // SAFETY: the default action calls no function.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    let closed = CLOSED.load(Ordering::Relaxed);
    for fd in (0..3).filter(|fd| closed & 1 << fd != 0) {
        // Until the program is executed, this process may print a message.
        // SAFETY: this changes a flag of a descriptor that the runtime has opened.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
