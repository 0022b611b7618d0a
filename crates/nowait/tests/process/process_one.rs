//! Forked children in a PID namespace of their own.
#![allow(unsafe_code, reason = "setns(2), unshare(2)")]

use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::forked::forked;

/// As [`forked`], in a new PID namespace, where the child is process 1. Skips the test (see
/// [`slowdisk::skip_or_fail`]) where no namespace can be made.
pub fn forked_as_process_one(what: &str, body: impl FnOnce()) {
    let own = std::fs::File::open("/proc/thread-self/ns/pid").unwrap();
    // Only for this thread, and only until setns(2) below: a thread whose children belong to another PID
    // namespace can't start threads. This thread itself must fork: in the child, glibc reuses the stacks
    // of the other threads.
    // SAFETY: no memory is involved.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
        return slowdisk::skip_or_fail("not root: no PID namespace is to be had");
    }
    let ended = catch_unwind(AssertUnwindSafe(|| {
        forked(what, || {
            assert_eq!(std::process::id(), 1);
            body();
        });
    }));
    // SAFETY: as above.
    let back = unsafe { libc::setns(own.as_raw_fd(), libc::CLONE_NEWPID) };
    assert_eq!(back, 0, "{}", std::io::Error::last_os_error());
    ended.unwrap();
}
