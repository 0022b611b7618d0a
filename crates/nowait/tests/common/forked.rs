//! Forked children. A test that forks runs in a process of its own (`alone`): no thread of another test
//! holds a lock during the fork.
#![allow(unsafe_code, reason = "fork(2), waitpid(2)")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::wait::LONG;

/// Runs `body` in a forked child. The child ends without running any destructor of its parent.
///
/// # Panics
/// If it panics, dies or hangs.
pub fn forked(what: &str, body: impl FnOnce()) {
    // SAFETY: the child runs only `body`. No other thread holds a lock that `body` needs: glibc resets
    // its own locks in the child, and the library's locks are what is tested.
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
