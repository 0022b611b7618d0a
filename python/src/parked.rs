//! A thread that waits for a future, and wakes from time to time to check for signals.

use std::sync::Arc;
use std::task::Wake;
use std::thread::{self, Thread};
use std::time::Duration;

/// The interval at which signals are checked.
const INTERVAL: Duration = Duration::from_millis(50);

/// Wakes the thread that waits.
pub struct Unpark(Thread);

impl Unpark {
    /// A waker of the calling thread.
    pub fn this_thread() -> Arc<Unpark> {
        Arc::new(Unpark(thread::current()))
    }

    /// Waits until the waker is called, or for the interval.
    pub fn wait() {
        thread::park_timeout(INTERVAL);
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
