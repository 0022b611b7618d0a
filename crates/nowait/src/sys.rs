//! System calls by number, and the few calls that the crates in use do not have. No other module
//! makes such calls.
//!
//! Each function is one call, without policy. Errors are the kernel's errno. Callers repeat a call
//! that a signal interrupted by [`retry`].

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("nowait is for 64-bit Linux");

/// Makes a system call by number. Miri makes none.
macro_rules! syscall {
    ($($argument:expr),* $(,)?) => {{
        #[cfg(not(miri))]
        let returned = libc::syscall($($argument),*);
        #[cfg(miri)]
        let returned = $crate::sys::miri::no_such_call(($($argument),*));
        returned
    }};
}

pub(crate) mod cast;
pub(crate) mod clock;
pub(crate) mod close;
pub(crate) mod descriptor_table;
pub(crate) mod eventfd;
pub(crate) mod lease;
pub(crate) mod limit;
pub(crate) mod mapping;
pub(crate) mod membarrier;
#[cfg(miri)]
mod miri;
pub(crate) mod process;
pub(crate) mod raw_memory;
pub(crate) mod reopen;
pub(crate) mod residency;
pub(crate) mod resolve;
pub(crate) mod retry;
pub(crate) mod ring;
pub(crate) mod rw;
#[cfg(not(any(shuttle, miri)))]
pub(crate) mod spawn;
pub(crate) mod stat;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod uninit_slice;
pub(crate) mod wiped;
pub(crate) mod xattr;

pub(crate) use rustix::io::Errno;

/// Converts the return value of a `libc` call to a count or the thread's errno.
fn check(ret: libc::c_long) -> Result<usize, Errno> {
    // A negative return value sets errno, which is never 0.
    let errno = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    usize::try_from(ret).map_err(|_| errno())
}
