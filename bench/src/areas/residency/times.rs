//! Times of calls, and their quantiles with two significant digits.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Times of one kind of call.
pub struct Times(Histogram<u64>);

/// The longest time that is recorded, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

impl Times {
    pub fn new() -> Times {
        Times(Histogram::new_with_bounds(1, LONGEST, 2).expect("the bounds are valid"))
    }

    #[inline]
    pub fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(LONGEST);
        self.0.saturating_record(ns.max(1));
    }

    /// A quantile in nanoseconds; `None` if there are no times.
    pub fn at(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64)
    }
}
