//! The figures of one peer's turn.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::harness::percentiles::Percentiles;
use crate::harness::usage::Usage;

/// One peer in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Round {
    pub ops: u64,
    pub seconds: f64,
    pub ops_per_s: f64,
    pub mb_per_s: f64,
    /// Processor time of all threads for one operation.
    pub cpu_us_per_op: f64,
    pub cpu_percent: f64,
    /// The time of one operation as its task sees it.
    pub lat_us: Option<Percentiles>,
    /// The lateness of the event loop for a timer; `None` without an event loop.
    pub tick_us: Option<Percentiles>,
}

impl Round {
    pub fn new(
        ops: u64,
        latency: &Histogram<u64>,
        lateness: Option<&Histogram<u64>>,
        block: u64,
        seconds: f64,
        used: Usage,
    ) -> Round {
        let seconds = seconds.max(1e-9);
        let count = ops as f64;
        Round {
            ops,
            seconds,
            ops_per_s: count / seconds,
            mb_per_s: count * block as f64 / seconds / 1e6,
            cpu_us_per_op: 1e6 * used.cpu() / count.max(1.0),
            cpu_percent: 100.0 * used.cpu() / seconds,
            lat_us: Percentiles::of(latency),
            tick_us: lateness.and_then(Percentiles::of),
        }
    }
}
