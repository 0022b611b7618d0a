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

pub(crate) mod clock;
pub(crate) mod close;
pub(crate) mod eventfd;
pub(crate) mod lease;
pub(crate) mod limit;
pub(crate) mod mapping;
pub(crate) mod membarrier;
#[cfg(miri)]
mod miri;
pub(crate) mod raw_memory;
pub(crate) mod resolve;
pub(crate) mod retry;
pub(crate) mod ring;
pub(crate) mod rw;
pub(crate) mod stat;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod uninit_slice;
pub(crate) mod wiped;
pub(crate) mod xattr;

pub(crate) use nowait_residency::sys::{Errno, cast, check, descriptor_table, process, reopen};
