//! What one task notes of its operations.

use hdrhistogram::Histogram;

/// How many there were, and how long some of them took.
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

/// Of nanoseconds up to a minute, three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000_000, 3).expect("these bounds are in order")
}
