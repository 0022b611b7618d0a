//! A thread with a descriptor table of its own.
//!
//! If any descriptor of a file is closed in the table of the program, the program loses its locks
//! of fcntl(2) on that file. They belong to the table, so a descriptor that is closed in another one
//! drops none. A descriptor of O_PATH drops none either.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::channel;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::thread::gettid;

use super::Errno;
use super::reopen::Descriptors;
use super::spawn::spawn_without_signals;

/// Opens the file of `fd` again with O_PATH.
pub fn hold(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    Descriptors::of_this_thread().reopen(fd, OFlags::PATH)
}

/// Opens the file of `held` for reading, without waiting for a lease, and calls `work` with it, in a
/// thread with a table of its own. Waits for the result. `None` if there is no such thread, or the
/// file cannot be opened.
pub fn with_reopened<T: Send + 'static>(
    held: BorrowedFd<'_>,
    work: impl FnOnce(&OwnedFd) -> T + Send + 'static,
) -> Option<T> {
    let thread = gettid().as_raw_nonzero();
    let path = format!("/proc/self/task/{thread}/fd/{}", held.as_raw_fd());
    let (to, result) = channel();
    let body = move || {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        if leave_table().is_err() {
            return;
        }
        // The file is closed before the result is sent.
        let result = openat(CWD, path, flags, Mode::empty()).map(|file| work(&file));
        let _ = result.map(|result| to.send(result));
    };
    spawn_without_signals(c"nowait-evict", body).ok()?;
    // It fails when the thread has ended without a result, also by a panic.
    result.recv().ok()
}

/// Gives the calling thread an empty descriptor table: close_range(2), Linux 5.9.
fn leave_table() -> Result<(), Errno> {
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    let (all, flags) = (libc::c_long::from(u32::MAX), libc::CLOSE_RANGE_UNSHARE);
    // SAFETY: only numbers are passed. The thread is the library's, and none of its code uses a
    // descriptor of the table that it leaves.
    super::check(unsafe { libc::syscall(libc::SYS_close_range, 0_i64, all, flags) }).map(drop)
}
