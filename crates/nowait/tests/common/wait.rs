//! Waiting for another thread.

use std::time::{Duration, Instant};

/// No step of a test takes this long, even on a busy machine, unless it hangs.
pub const LONG: Duration = Duration::from_secs(30);

/// Waits until a condition holds. `what` is the message if it never does.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
