//! Threads that take no signals, and knowing whether this is still the process that made us.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Spawns a named thread on which every signal is blocked, so that no signal of the program is
/// ever delivered because of an operation (SIGPIPE and SIGXFSZ go to the thread that writes).
#[cfg(not(shuttle))]
pub(crate) fn spawn_without_signals(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // A new thread inherits its parent's mask: block all, spawn, put ours back.
    // SAFETY: sigfillset initialises `all`; pthread_sigmask initialises `before`.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let spawned = std::thread::Builder::new().name(name.into()).spawn(body);
    // SAFETY: `before` was initialised above.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    spawned
}

/// The process that something belongs to. Rings and threads do not survive fork(2).
#[derive(Debug)]
pub(crate) struct Owner(AtomicU32);

impl Owner {
    /// This process.
    pub(crate) fn current() -> Owner {
        Owner(AtomicU32::new(pid()))
    }

    /// Whether the caller runs in the process that made this, not in a forked child of it.
    pub(crate) fn is_here(&self) -> bool {
        self.0.load(Ordering::Relaxed) == pid()
    }
}

/// getpid(2), asked of the kernel each time: raw clone(2) skips every atfork handler.
fn pid() -> u32 {
    rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}

/// How many times this thread has gone to sleep so far, for a device or a lock: getrusage(2). What
/// the scheduler took away from it does not count.
pub(crate) fn sleeps() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the struct is plain data, zeroed and the kernel's to fill.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    u64::try_from(usage.ru_nvcsw).unwrap_or(0)
}

/// The size of a page, in bytes. Asked of libc: rustix reads it from /proc where prctl can't tell
/// (before 6.4), and panics where that can't be opened.
pub(crate) fn page_size() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    match SIZE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: sysconf has no preconditions.
            let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            let size = usize::try_from(size).unwrap_or(4096);
            SIZE.store(size, Ordering::Relaxed);
            size
        }
        size => size,
    }
}
