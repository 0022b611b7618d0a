//! Signals: queueing one, asking for a handler's flags, blocking all.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use rustix::io::Errno;

use crate::abi::Sigval;
use crate::sys::errno;

/// True if this signal's handler has SA_RESTART: sigaction(2).
pub fn has_sa_restart(signo: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the call only reads the action of the signal, and fills `action` if it succeeds.
    unsafe {
        libc::sigaction(signo, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_flags & libc::SA_RESTART != 0
    }
}

/// `siginfo_t` of 64-bit Linux, for a queued signal.
#[repr(C)]
struct SigInfo {
    signo: c_int,
    errno: c_int,
    code: c_int,
    pad: c_int,
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: Sigval,
    reserved: [u64; 12],
}

const _: () = assert!(size_of::<SigInfo>() == size_of::<libc::siginfo_t>());

/// Queues a signal to this process, with the code that POSIX has for asynchronous I/O:
/// rt_sigqueueinfo(2).
pub fn queue(signo: c_int, value: Sigval) -> Result<(), Errno> {
    const SI_ASYNCIO: c_int = -4;
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let info = SigInfo {
        signo,
        errno: 0,
        code: SI_ASYNCIO,
        pad: 0,
        pid,
        uid: rustix::process::getuid().as_raw(),
        value,
        reserved: [0; 12],
    };
    // SAFETY: the record lives through the call, which only reads it.
    match unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, pid, signo, &raw const info) } {
        0 => Ok(()),
        _ => Err(errno::last()),
    }
}

/// Runs `work` with all signals blocked on the calling thread: pthread_sigmask(3).
pub fn with_all_blocked<T>(work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises `all`; pthread_sigmask initialises `before`. Only the calling
    // thread's mask changes.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = work();
    // SAFETY: `before` was initialised above.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    result
}
