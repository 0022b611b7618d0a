//! Histograms of latencies, and their percentiles.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Nanoseconds: no operation takes longer than an hour, or it counts as one.
const LONGEST: u64 = 3_600_000_000_000;

/// An empty histogram of nanoseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are valid")
}

/// A time in nanoseconds, as a histogram takes it.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(LONGEST).max(1)
}

/// A quantile of a histogram in nanoseconds; `None` if it is empty.
pub fn quantile(histogram: &Histogram<u64>, quantile: f64) -> Option<f64> {
    (!histogram.is_empty()).then(|| histogram.value_at_quantile(quantile) as f64)
}

/// Percentiles of latencies in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub p9999: f64,
    pub max: f64,
}

impl Percentiles {
    /// The percentiles of a histogram of nanoseconds; `None` if it is empty.
    pub fn of(histogram: &Histogram<u64>) -> Option<Percentiles> {
        let at = |q| histogram.value_at_quantile(q) as f64 / 1e3;
        (!histogram.is_empty()).then(|| Percentiles {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: histogram.max() as f64 / 1e3,
        })
    }
}
