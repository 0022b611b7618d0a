//! The records of one task: its operations and their latencies.

use hdrhistogram::Histogram;

use crate::harness::percentiles::histogram;

/// The number of operations, and the latencies of those that were timed.
pub struct Tape {
    pub ops: u64,
    /// Nanoseconds.
    pub latency: Histogram<u64>,
}

impl Tape {
    pub fn new() -> Tape {
        Tape {
            ops: 0,
            latency: histogram(),
        }
    }

    pub fn add(&mut self, other: &Tape) {
        self.ops += other.ops;
        // Both have the same bounds.
        let _ = self.latency.add(&other.latency);
    }
}
