//! The figures of one peer's turn.

use std::ops::Sub;

use hdrhistogram::Histogram;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};

use crate::areas::runtimes::tape::Tape;

/// One peer in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Round {
    pub ops: u64,
    pub seconds: f64,
    pub ops_per_s: f64,
    pub mb_per_s: f64,
    /// Processor time of all threads, of one operation.
    pub cpu_us_per_op: f64,
    pub cpu_percent: f64,
    /// From when a task asks to when it has it.
    pub lat_us: Percentiles,
    /// How late the event loop was for a timer; `None` where there is none.
    pub tick_us: Option<Percentiles>,
}

/// Microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Percentiles {
        let at = |q| histogram.value_at_quantile(q) as f64 / 1e3;
        Percentiles {
            p50: at(0.5),
            p99: at(0.99),
            max: histogram.max() as f64 / 1e3,
        }
    }
}

/// Processor time of this process, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Used(i64);

impl Used {
    pub fn now() -> Used {
        // It can't fail: there is such a process.
        Used(getrusage(UsageWho::RUSAGE_SELF).map_or(0, |used| {
            used.user_time().num_microseconds() + used.system_time().num_microseconds()
        }))
    }
}

impl Sub for Used {
    type Output = Used;

    fn sub(self, before: Used) -> Used {
        Used(self.0 - before.0)
    }
}

impl Round {
    pub fn new(
        tape: &Tape,
        lateness: Option<&Histogram<u64>>,
        block: u64,
        seconds: f64,
        used: Used,
    ) -> Round {
        let seconds = seconds.max(1e-9);
        let ops = tape.ops as f64;
        Round {
            ops: tape.ops,
            seconds,
            ops_per_s: ops / seconds,
            mb_per_s: ops * block as f64 / seconds / 1e6,
            cpu_us_per_op: used.0 as f64 / ops.max(1.0),
            cpu_percent: used.0 as f64 / seconds / 1e4,
            lat_us: Percentiles::of(&tape.latency),
            tick_us: lateness.map(Percentiles::of),
        }
    }
}
