//! Congestion: a try of the page cache may wait, because the queue of the device is full.
//!
//! A failed `RWF_NOWAIT` read starts a readahead (Linux since about 6.12). If the device's queue is
//! full, the kernel waits until one of its requests is complete (`blk_mq_get_tag`), also in a read
//! that must not wait. While an engine is congested, its reads ask for residency before they try.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::sys::clock::monotonic_ms;

/// With this number of operations in flight, a queue may be full. Device queues usually
/// have at least 32 entries.
const MIN_IN_FLIGHT: usize = 32;

/// A try that takes this long counts as one that waited for a device. Usually it takes some
/// microseconds.
const BLOCKED_THRESHOLD: Duration = Duration::from_millis(1);

/// The time for which tries are avoided after one that has waited, in milliseconds.
const AVOID_MS: u64 = 1_000;

/// The congestion of an engine.
#[derive(Debug)]
pub(crate) struct Congestion {
    /// The end of the time for which tries are avoided, in milliseconds of the monotonic clock. Zero
    /// if no try has waited.
    until: AtomicU64,
}

impl Congestion {
    pub(crate) const fn new() -> Congestion {
        Congestion {
            until: AtomicU64::new(0),
        }
    }

    /// Notes that a try took this time.
    pub(crate) fn tried(&self, took: Duration) {
        if took >= BLOCKED_THRESHOLD {
            self.until.store(monotonic_ms() + AVOID_MS, Relaxed);
        }
    }

    /// Returns true if a try may wait. `in_flight` is the number of the engine's operations that
    /// need a device.
    pub(crate) fn is_congested(&self, in_flight: usize) -> bool {
        if in_flight >= MIN_IN_FLIGHT {
            return true;
        }
        let until = self.until.load(Relaxed);
        until != 0 && monotonic_ms() < until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_avoided_beside_many_operations_and_after_one_that_has_waited() {
        let congestion = Congestion::new();
        assert!(congestion.is_congested(MIN_IN_FLIGHT));
        assert!(!congestion.is_congested(MIN_IN_FLIGHT - 1));
        congestion.tried(BLOCKED_THRESHOLD / 2);
        assert!(!congestion.is_congested(0));
        congestion.tried(BLOCKED_THRESHOLD);
        assert!(congestion.is_congested(0));
        congestion.until.store(monotonic_ms(), Relaxed);
        assert!(!congestion.is_congested(0));
    }
}
