//! Congestion: a try of the page cache may wait, because the queue of the device is full.
//!
//! A failed `RWF_NOWAIT` read starts a readahead (Linux since about 6.12). If the device's queue is full, the kernel
//! waits until one of its requests is complete (`blk_mq_get_tag`), also in a read that must not wait. While an
//! engine is congested, its reads ask for residency before they try.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// With this number of operations in flight, a queue may be full. Device queues usually have at least 32 places.
const MANY: usize = 32;

/// A try that takes this long counts as one that waited for a device. Usually it takes some microseconds.
const LONG: Duration = Duration::from_millis(1);

/// The time for which tries are avoided after one that has waited, in milliseconds.
const AVOIDED: u64 = 1_000;

/// The congestion of an engine.
#[derive(Debug, Default)]
pub(crate) struct Congestion {
    /// The end of the time for which tries are avoided, in milliseconds of the clock.
    until: AtomicU64,
}

impl Congestion {
    /// Notes that a try took this time.
    pub(crate) fn tried(&self, took: Duration) {
        if took >= LONG {
            self.until.store(now() + AVOIDED, Relaxed);
        }
    }

    /// Returns true if a try may wait. `in_flight` is the number of the engine's operations that need a device.
    pub(crate) fn holds(&self, in_flight: usize) -> bool {
        if in_flight >= MANY {
            return true;
        }
        let until = self.until.load(Relaxed);
        until != 0 && now() < until
    }
}

/// Milliseconds, exact to a tick of the kernel.
fn now() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_avoided_beside_many_operations_and_after_one_that_has_waited() {
        let congestion = Congestion::default();
        assert!(congestion.holds(MANY));
        assert!(!congestion.holds(MANY - 1));
        congestion.tried(LONG / 2);
        assert!(!congestion.holds(0));
        congestion.tried(LONG);
        assert!(congestion.holds(0));
        congestion.until.store(now(), Relaxed);
        assert!(!congestion.holds(0));
    }
}
