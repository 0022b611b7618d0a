//! Tells whether two descriptors refer to the same open file description.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::io::Errno;

use crate::sys::{errno, thread};

/// A descriptor in the table of a thread.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorOf {
    pub thread: i32,
    pub number: RawFd,
}

/// Compares descriptors in the tables of two threads: kcmp(2). `None` where the kernel lacks the
/// call or a sandbox denies it.
pub fn is_same_across_threads(one: DescriptorOf, other: DescriptorOf) -> Option<bool> {
    const KCMP_FILE: c_int = 0;
    // syscall(2) passes whole registers, and the kernel reads them as such.
    let (one_fd, other_fd) = (i64::from(one.number), i64::from(other.number));
    // SAFETY: only numbers are passed.
    let order = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            one.thread,
            other.thread,
            KCMP_FILE,
            one_fd,
            other_fd,
        )
    };
    match order {
        0 => Some(true),
        1..=3 => Some(false),
        // One of the two is no longer a descriptor.
        _ if errno::last() == Errno::BADF => Some(false),
        _ => None,
    }
}

/// Compares two descriptors of the calling thread's table: fcntl(2) F_DUPFD_QUERY (Linux 6.10),
/// else kcmp(2). `None` where both are missing.
pub fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Option<bool> {
    const F_DUPFD_QUERY: c_int = 1024 + 3;
    // SAFETY: only numbers are passed.
    match unsafe { libc::fcntl(one.as_raw_fd(), F_DUPFD_QUERY, other.as_raw_fd()) } {
        0 => Some(false),
        1 => Some(true),
        _ => {
            let thread = thread::id();
            let [one, other] = [one, other].map(|fd| DescriptorOf {
                thread,
                number: fd.as_raw_fd(),
            });
            is_same_across_threads(one, other)
        }
    }
}
