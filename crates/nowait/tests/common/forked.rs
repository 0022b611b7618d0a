//! Forked children of a test that has a process of its own.
#![allow(unsafe_code, reason = "fork(2), setns(2), unshare(2), waitpid(2)")]

use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::engines::{LONG, in_child, role};

/// Runs `body` in a forked child, which then ends without any destructor of its parent's.
///
/// # Panics
/// If it panics, dies or hangs.
pub fn forked(what: &str, body: impl FnOnce()) {
    // SAFETY: the child only runs `body`, whose locks and memory other threads don't hold: glibc's
    // own are put right by fork(2), and ours are what is tested.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let ended = catch_unwind(AssertUnwindSafe(body));
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(if ended.is_ok() { 0 } else { 1 }) };
    }
    assert!(pid > 0);
    let end = Instant::now() + LONG;
    let mut status = 0;
    loop {
        // SAFETY: `status` lives through the call.
        match unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } {
            0 if Instant::now() > end => {
                // SAFETY: our own child, not yet waited for.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                panic!("{what}: the child hangs");
            }
            0 => std::thread::sleep(std::time::Duration::from_millis(1)),
            _ => break,
        }
    }
    assert_eq!(status, 0, "{what}: the child failed; its message is above");
}

/// As [`forked`], in a new PID namespace, where the child is process 1. Says so (or fails, see
/// [`slowdisk::skip_or_fail`]) where none is to be had.
#[allow(dead_code, reason = "not every test binary needs it")]
pub fn forked_as_process_one(what: &str, body: impl FnOnce()) {
    let own = std::fs::File::open("/proc/thread-self/ns/pid").unwrap();
    // Of this thread alone, and for a moment: a thread whose children are elsewhere starts no others.
    // It must be this one that forks: the child uses other threads' stacks for new ones.
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

/// Each test has a process of its own: no other test's threads hold locks while it forks.
#[allow(dead_code, reason = "not every test binary needs it")]
pub fn alone(test: &str, body: impl FnOnce()) {
    match role() {
        None => drop(in_child(test, "alone")),
        Some(_) => body(),
    }
}
