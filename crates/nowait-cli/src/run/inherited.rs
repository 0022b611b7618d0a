//! The state that Rust's runtime changes before main(). The program inherits it as `nowait run` has
//! inherited it.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use nix::sys::signal::SigSet;

/// A bit for each of the descriptors 0 to 2 that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// A bit for each signal number less one, of [`CHANGED`], that was ignored.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Signals that become ignored. Rust's runtime ignores SIGPIPE. The C library uses 32 and 33 for
/// threads. posix_spawn(3) makes the program ignore these two unless its attributes name them, and
/// the functions for sets of signals refuse them.
const CHANGED: [c_int; 3] = [libc::SIGPIPE, 32, 33];

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
    for signal in CHANGED {
        // The kernel's struct sigaction begins with the handler.
        let mut action = [libc::SIG_DFL; 8];
        let (none, size) = (std::ptr::null::<usize>(), size_of::<u64>());
        // SAFETY: rt_sigaction(2) changes nothing, and fills a struct that is shorter than this
        // one.
        let result = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                none,
                action.as_mut_ptr(),
                size,
            )
        };
        if result == 0 && action[0] == libc::SIG_IGN {
            IGNORED.fetch_or(bit(signal), Ordering::Relaxed);
        }
    }
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The descriptors, of 0 to 2, that were closed. The runtime has opened them.
pub fn closed() -> impl Iterator<Item = i32> {
    let closed = CLOSED.load(Ordering::Relaxed);
    (0..3).filter(move |fd| closed & 1 << fd != 0)
}

/// The signals that have the default action in the program, and would be ignored otherwise.
pub fn default_signals() -> SigSet {
    let ignored = IGNORED.load(Ordering::Relaxed);
    let changed = CHANGED.map(bit).into_iter().fold(0, |all, bit| all | bit);
    let mut set: libc::sigset_t = *SigSet::empty().as_ref();
    // SAFETY: the set begins with a bit for each of 64 signals, as the kernel has them.
    // sigaddset(3) refuses some.
    unsafe { (&raw mut set).cast::<u64>().write(changed & !ignored) };
    // SAFETY: the set was initialized by sigemptyset(3).
    unsafe { SigSet::from_sigset_t_unchecked(set) }
}
