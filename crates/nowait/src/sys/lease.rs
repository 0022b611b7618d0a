//! Leases: fcntl(2), `F_SETLEASE`. The kernel asks the holder of a read lease before any process
//! opens the file for writing or truncates it.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::thread::{Pid, gettid};

use super::{Errno, check};
use nowait_residency::sys::lease::has;

/// The signal that reports a lease break. A thread that waits for it gets it; it reaches no other
/// thread.
fn signal() -> libc::c_int {
    libc::SIGRTMAX()
}

/// `struct f_owner_ex` (fcntl(2), `F_SETOWN_EX`).
#[repr(C)]
struct FOwnerEx {
    kind: libc::c_int,
    pid: libc::pid_t,
}

const F_OWNER_TID: libc::c_int = 0;
const F_SETOWN_EX: libc::c_int = 15;
const F_SETSIG: libc::c_int = 10;

fn fcntl<T>(fd: BorrowedFd<'_>, command: libc::c_int, argument: T) -> Result<usize, Errno> {
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    // SAFETY: each caller passes the argument that its command needs. It is valid during the call.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), command, argument) }.into())
}

/// Takes a read lease of a file that was opened with O_RDONLY. The thread `holder` is told when it
/// is about to be broken. The signal and its receiver are set first: with the default, a break
/// sends SIGIO to the process and ends it.
///
/// # Errors
/// EAGAIN if the file is open for writing, EACCES if it belongs to another user and the process
/// lacks CAP_LEASE, EINVAL if the filesystem has no leases.
pub(crate) fn take(fd: BorrowedFd<'_>, holder: Pid) -> Result<(), Errno> {
    let owner = FOwnerEx {
        kind: F_OWNER_TID,
        pid: holder.as_raw_nonzero().get(),
    };
    fcntl(fd, F_SETSIG, signal())?;
    fcntl(fd, F_SETOWN_EX, &raw const owner)?;
    fcntl(fd, libc::F_SETLEASE, libc::c_int::from(libc::F_RDLCK))?;
    Ok(())
}

/// Gives a lease back. A process that waits for it goes on.
pub(crate) fn give_back(fd: BorrowedFd<'_>) {
    // It fails only if there is no lease any more.
    let _ = fcntl(fd, libc::F_SETLEASE, libc::c_int::from(libc::F_UNLCK));
}

/// Returns true if the lease is held and is not being broken: fcntl(2), `F_GETLEASE`.
pub(crate) fn is_held(fd: BorrowedFd<'_>) -> bool {
    has(fd, libc::F_RDLCK)
}

/// A message to the thread that holds leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The lease of this descriptor is being broken.
    Break(RawFd),
    /// Any lease may be: the queue of signals was full.
    Any,
    /// The time has passed, or the wait was interrupted.
    Nothing,
    /// The kernel or a sandbox denies the wait.
    Denied,
}

/// The ID of the calling thread.
pub(crate) fn this_thread() -> Pid {
    gettid()
}

/// Waits for a lease break, in a thread that has all signals blocked: sigtimedwait(2).
pub(crate) fn wait(limit: Option<Duration>) -> Event {
    let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the set is initialised by sigemptyset. The kernel fills the information, which is
    // plain data and zeroed.
    let (got, info) = unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), signal());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGIO);
        let got = libc::sigtimedwait(signals.as_ptr(), info.as_mut_ptr(), limit);
        (got, info.assume_init())
    };
    match got {
        got if got == signal() => Event::Break(poll_fd(&info)),
        libc::SIGIO => Event::Any,
        _ => match Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(Errno::AGAIN | Errno::INTR) => Event::Nothing,
            _ => Event::Denied,
        },
    }
}

/// `si_fd` of siginfo_t (sigaction(2)), which the `libc` crate does not name.
fn poll_fd(info: &libc::siginfo_t) -> RawFd {
    /// The head of siginfo_t and the fields of SIGPOLL, on 64-bit Linux.
    #[repr(C)]
    struct Poll {
        head: [libc::c_int; 4],
        band: libc::c_long,
        fd: RawFd,
    }
    const { assert!(size_of::<Poll>() <= size_of::<libc::siginfo_t>()) }
    // SAFETY: `Poll` is a prefix of siginfo_t, with its alignment, and plain data.
    unsafe { (*std::ptr::from_ref(info).cast::<Poll>()).fd }
}
