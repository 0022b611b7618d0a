//! The figures of one class of a mix: its hits, and its latencies in the buckets of fio.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::percentiles::{Percentiles, histogram, nanoseconds};

/// The limits of fio's buckets in microseconds. One more bucket has longer latencies.
const ENDS: [u64; 21] = [
    2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000, 4000, 10_000, 20_000, 50_000, 100_000,
    250_000, 500_000, 750_000, 1_000_000, 2_000_000,
];
/// The number of buckets up to 20 us: reads of a device take longer.
const FAST: usize = 4;

/// The records of a class during a turn.
pub struct Tape {
    ops: u64,
    /// The reads that the page cache served, as the contender reports them; `None` if it reports
    /// none.
    hits: Option<u64>,
    /// The reads of blocks that the bench itself knows to be cached; `None` if it does not keep
    /// track.
    booked: Option<u64>,
    buckets: [u64; ENDS.len() + 1],
    latency: Histogram<u64>,
    /// The latencies of reads of blocks that the bench knows to be cached.
    of_booked: Histogram<u64>,
}

impl Default for Tape {
    fn default() -> Tape {
        Tape {
            ops: 0,
            hits: None,
            booked: None,
            buckets: [0; ENDS.len() + 1],
            latency: histogram(),
            of_booked: histogram(),
        }
    }
}

impl Tape {
    /// Records a read: its latency, if it was a hit as the contender reports it, and if the bench
    /// knows the block to be cached.
    pub fn note(&mut self, time: Duration, hit: Option<bool>, booked: Option<bool>) {
        self.ops += 1;
        for (sum, one) in [(&mut self.hits, hit), (&mut self.booked, booked)] {
            if let Some(one) = one {
                *sum.get_or_insert(0) += u64::from(one);
            }
        }
        let us = time.as_micros() as u64;
        self.buckets[ENDS.partition_point(|&end| end <= us)] += 1;
        self.latency.saturating_record(nanoseconds(time));
        if booked == Some(true) {
            self.of_booked.saturating_record(nanoseconds(time));
        }
    }
}

/// One class of one contender in one round.
#[derive(Clone, Debug, Serialize)]
pub struct Class {
    pub ops: u64,
    pub ops_per_s: f64,
    pub mb_per_s: f64,
    /// The share of reads, 0 to 1, that the page cache served, as the contender reports it.
    pub hits: Option<f64>,
    /// The share of reads whose blocks the bench knows to be cached.
    pub booked: Option<f64>,
    /// The share of reads that took less than 20 us.
    pub under_20us: f64,
    pub lat_us: Option<Percentiles>,
    /// The latencies of reads whose blocks the bench knows to be cached.
    pub booked_lat_us: Option<Percentiles>,
    /// fio's buckets: per cent of the reads below each limit and not below the one before.
    pub buckets: Value,
    /// All latencies, for charts.
    #[serde(skip)]
    pub latency: Histogram<u64>,
}

impl Class {
    /// The figures of a class in one turn.
    pub fn of(tape: Tape, block: u64, seconds: f64) -> Class {
        let seconds = seconds.max(1e-9);
        let share = |n: u64| n as f64 / tape.ops.max(1) as f64;
        Class {
            ops: tape.ops,
            ops_per_s: tape.ops as f64 / seconds,
            mb_per_s: (tape.ops * block) as f64 / seconds / 1e6,
            hits: tape.hits.map(share),
            booked: tape.booked.map(share),
            under_20us: share(tape.buckets[..FAST].iter().sum()),
            lat_us: Percentiles::of(&tape.latency),
            booked_lat_us: Percentiles::of(&tape.of_booked),
            buckets: buckets(tape.buckets.map(|n| 100.0 * share(n))),
            latency: tape.latency,
        }
    }
}

/// `{"usec": {"2": %, …}, "msec": {"2": %, …, ">=2000": %}}`
fn buckets(per_cent: [f64; ENDS.len() + 1]) -> Value {
    let (mut usec, mut msec) = (Map::new(), Map::new());
    for (end, share) in ENDS.into_iter().zip(per_cent) {
        match end {
            ..=1000 => usec.insert(end.to_string(), share.into()),
            _ => msec.insert((end / 1000).to_string(), share.into()),
        };
    }
    msec.insert(">=2000".into(), per_cent[ENDS.len()].into());
    json!({"usec": usec, "msec": msec})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_fios() {
        let mut tape = Tape::default();
        for us in [1, 3, 3, 19, 20, 999, 1_000, 3_000_000] {
            tape.note(Duration::from_micros(us), Some(us < 4), None);
        }
        let class = Class::of(tape, 4096, 2.0);
        assert_eq!(
            (class.ops, class.hits, class.booked),
            (8, Some(0.375), None)
        );
        assert_eq!(class.under_20us, 0.5);
        let share = |unit: &str, limit: &str| class.buckets[unit][limit].as_f64();
        for (unit, limit, want) in [
            ("usec", "2", 12.5),
            ("usec", "4", 25.0),
            ("usec", "10", 0.0),
            ("usec", "20", 12.5),
            ("usec", "50", 12.5),
            ("usec", "1000", 12.5),
            ("msec", "2", 12.5),
            ("msec", ">=2000", 12.5),
        ] {
            assert_eq!(share(unit, limit), Some(want), "{unit} {limit}");
        }
        assert!(class.booked_lat_us.is_none());
    }
}
