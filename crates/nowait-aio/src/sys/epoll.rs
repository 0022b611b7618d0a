//! Waiting for events: epoll_wait(2).

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;

use crate::sys::errno;

/// Waits for events, or until the time is up. Returns the number of events.
///
/// epoll_wait(2) of the C library: rustix leaves an argument uninitialised where it has no set of
/// signals. The kernel ignores that argument, but valgrind complains.
pub fn wait(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
) -> Result<usize, Errno> {
    let len = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    let timeout = timeout.map_or(-1, |timeout| timeout.as_millis() as c_int);
    // SAFETY: the call fills at most `len` events.
    let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), len, timeout) };
    usize::try_from(count).map_err(|_| errno::last())
}
