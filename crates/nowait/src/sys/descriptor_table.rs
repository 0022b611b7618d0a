//! A thread with a descriptor table of its own.
//!
//! If any descriptor of a file is closed in the table of the program, the program loses its locks
//! of fcntl(2) on that file. They belong to the table, so a descriptor that is closed in another one
//! drops none. A descriptor of O_PATH drops none either.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::thread::gettid;

use super::Errno;
use super::reopen::Descriptors;
use super::sync::{Condvar, Mutex, lock, spawn, wait};

/// Opens the file of `fd` again with O_PATH.
pub(crate) fn hold(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    Descriptors::of_this_thread().reopen(fd, OFlags::PATH)
}

/// The end of a thread, and its result.
struct Ended<T> {
    result: Mutex<(bool, Option<T>)>,
    told: Condvar,
}

/// Tells of the end of the thread when it is dropped, also if the thread panics.
struct Tell<T>(Arc<Ended<T>>);

impl<T> Drop for Tell<T> {
    fn drop(&mut self) {
        lock(&self.0.result).0 = true;
        self.0.told.notify_one();
    }
}

/// Opens the file of `held` for reading, without waiting for a lease, and calls `work` with it, in a
/// thread with a table of its own. Waits for the result. `None` if there is no such thread, or the
/// file cannot be opened.
pub(crate) fn with_reopened<T: Send + 'static>(
    held: BorrowedFd<'_>,
    work: impl FnOnce(&OwnedFd) -> T + Send + 'static,
) -> Option<T> {
    let thread = gettid().as_raw_nonzero();
    let path = format!("/proc/self/task/{thread}/fd/{}", held.as_raw_fd());
    let ended = Arc::new(Ended {
        result: Mutex::new((false, None)),
        told: Condvar::new(),
    });
    let tell = Tell(ended.clone());
    let body = move || {
        let Tell(ended) = &tell;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        if leave_table().is_ok()
            && let Ok(file) = openat(CWD, path, flags, Mode::empty())
        {
            let result = work(&file);
            lock(&ended.result).1 = Some(result);
        }
    };
    spawn(c"nowait-evict", body).ok()?;
    let mut result = lock(&ended.result);
    while !result.0 {
        result = wait(&ended.told, result);
    }
    result.1.take()
}

/// Gives the calling thread an empty descriptor table: close_range(2), Linux 5.9.
fn leave_table() -> Result<(), Errno> {
    let (all, flags) = (libc::c_long::from(u32::MAX), libc::CLOSE_RANGE_UNSHARE);
    // SAFETY: only numbers are passed. The thread is the library's, and none of its code uses a
    // descriptor of the table that it leaves.
    super::check(unsafe { syscall!(libc::SYS_close_range, 0_i64, all, flags) }).map(drop)
}
