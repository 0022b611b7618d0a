//! The hit history of a file. It decides if the next read tries the page cache first.
//!
//! All clones of a handle share it. It has two atomic words and no lock. While all reads are hits,
//! nothing is written, so threads that read one hot file on many cores do not contend for the cache
//! line.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::policy::cost::Costs;

/// A rate of 1.
const ONE: u32 = 1 << 16;
/// A new answer has the weight 1/64. After a few hundred answers the old estimate has no effect.
/// Near a rate of 5 %, a usual break-even rate, the estimate is within 2 points.
const EWMA_SHIFT: u32 = 6;
/// A rate above this one counts as 1. Because of rounding, `hit` stops a little below 1.
const TOP: u32 = ONE - (1 << EWMA_SHIFT);
/// If trying does not pay, one read in this many tries, to notice a change.
const SAMPLE: u32 = 32;
/// If such a sample hits, this many consecutive reads try. With one answer in 32 reads alone, the
/// estimate would take thousands of reads to change.
const PROBE_RUN: u32 = 32;

/// The results of a file's reads: how often the page cache had all requested bytes. It decides if
/// the next read tries the page cache first. Each open file has its own history. A program that
/// makes [`cached`](crate::read::cached) reads of bare descriptors can keep one for each
/// descriptor.
///
/// ```
/// use nowait::cost::Costs;
/// use nowait::read::{CacheDecision, History, NowaitPolicy};
/// let history = History::new();
/// for _ in 0..1_000 {
///     history.miss();
/// }
/// history.decide(NowaitPolicy::Adaptive, Costs::default); // one read in 32 tries anyway
/// assert_eq!(history.decide(NowaitPolicy::Adaptive, Costs::default), CacheDecision::Skip);
/// ```
#[derive(Debug)]
pub struct History {
    /// The moving average of hits, in 1/65536. It starts at 1: the first reads always try.
    rate: AtomicU32,
    /// The number of reads since the last sample that hit, while trying does not pay. Below
    /// `PROBE_RUN`, all reads try.
    reads: AtomicU32,
}

/// A snapshot of a file's history: [`File::history`](crate::File::history).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recent {
    /// The estimated share of reads that the page cache could serve completely, 0 to 1. Recent
    /// reads weigh more. It is 1 for a file that was never read.
    pub hit_rate: f64,
}

/// The decision for the next read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheDecision {
    /// Try the page cache first. A try pays, or no result is known yet.
    Try,
    /// Skip the page cache. Tries have not paid recently.
    Skip,
    /// Never try: [`NowaitPolicy::Never`].
    Never,
}

/// The policy that decides if reads try the page cache first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NowaitPolicy {
    /// Decide by each file's history and the observed costs of a hit, a miss and a handoff.
    #[default]
    Adaptive,
    /// All reads try. Use it if a late hit costs the program more than a failed try.
    Always,
    /// No read tries. For data that is known to be cold, and for comparison.
    Never,
}

impl Default for History {
    fn default() -> History {
        History::new()
    }
}

impl History {
    /// The history of a file that was never read: the first reads try.
    pub const fn new() -> History {
        History {
            rate: AtomicU32::new(ONE),
            reads: AtomicU32::new(PROBE_RUN),
        }
    }

    /// Resets the history. To be used if the descriptor now refers to another file.
    pub fn forget(&self) {
        self.rate.store(ONE, Relaxed);
        self.reads.store(PROBE_RUN, Relaxed);
    }

    /// Records a try that found all requested bytes.
    pub fn hit(&self) {
        if (ONE - self.rate.load(Relaxed)) >> EWMA_SHIFT == 0 {
            // The rate is as high as it gets: write nothing.
            return;
        }
        self.record(true);
        if self.reads.load(Relaxed) > PROBE_RUN {
            self.reads.store(0, Relaxed);
        }
    }

    /// Records a try that found a part of the bytes, or none.
    pub fn miss(&self) {
        self.record(false);
    }

    /// Records whether the page cache had all bytes of a read, tried or not.
    pub(crate) fn record(&self, all_cached: bool) {
        let rate = self.rate.load(Relaxed);
        let new = if all_cached {
            rate + ((ONE - rate) >> EWMA_SHIFT)
        } else {
            rate - (rate >> EWMA_SHIFT)
        };
        if new != rate {
            self.rate.store(new, Relaxed);
        }
    }

    /// Decides if the next read tries the page cache first. If trying does not pay, reads are
    /// counted: one in 32 tries nevertheless, and after a sample that hits, the next 32 do.
    pub fn decide(&self, policy: NowaitPolicy, costs: impl FnOnce() -> Costs) -> CacheDecision {
        match policy {
            NowaitPolicy::Adaptive => {}
            NowaitPolicy::Always => return CacheDecision::Try,
            NowaitPolicy::Never => return CacheDecision::Never,
        }
        let recent = self.recent();
        // A file that always hits needs no costs.
        if recent.hit_rate == 1.0 || recent.hit_rate >= costs().break_even() {
            return CacheDecision::Try;
        }
        let reads = self.reads.load(Relaxed);
        let next = reads.checked_add(1).unwrap_or(PROBE_RUN);
        self.reads.store(next, Relaxed);
        if reads < PROBE_RUN || reads.is_multiple_of(SAMPLE) {
            CacheDecision::Try
        } else {
            CacheDecision::Skip
        }
    }

    /// The decision by what is known now. Counts no read.
    pub(crate) fn foresee(&self, policy: NowaitPolicy, costs: Costs) -> CacheDecision {
        let pays = match policy {
            NowaitPolicy::Adaptive => self.recent().hit_rate >= costs.break_even(),
            NowaitPolicy::Always => true,
            NowaitPolicy::Never => return CacheDecision::Never,
        };
        if pays {
            CacheDecision::Try
        } else {
            CacheDecision::Skip
        }
    }

    /// Returns true if all recent reads were hits.
    #[inline]
    pub(crate) fn always_hits(&self) -> bool {
        self.rate.load(Relaxed) > TOP
    }

    pub(crate) fn recent(&self) -> Recent {
        let rate = self.rate.load(Relaxed);
        Recent {
            hit_rate: if rate > TOP {
                1.0
            } else {
                f64::from(rate) / f64::from(ONE)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The break-even rate is one half.
    const COSTS: Costs = Costs {
        hit: 3.0,
        miss: 5.0,
        handoff: 6.0,
    };

    #[test]
    fn a_new_file_tries_and_a_hopeless_one_stops_but_samples() {
        let h = History::default();
        assert_eq!(
            h.decide(NowaitPolicy::Adaptive, || COSTS),
            CacheDecision::Try
        );
        for _ in 0..256 {
            h.miss();
        }
        let tries = (0..320)
            .filter(|_| h.decide(NowaitPolicy::Adaptive, || COSTS) == CacheDecision::Try)
            .count();
        assert_eq!(tries, 10);
    }

    #[test]
    fn it_turns_over_within_two_hundred_reads() {
        let h = History::default();
        (0..10_000).for_each(|_| h.miss());
        let mut reads = 0;
        // Only tries change the estimate.
        loop {
            reads += 1;
            if h.decide(NowaitPolicy::Adaptive, || COSTS) == CacheDecision::Try {
                h.hit();
                if h.recent().hit_rate >= COSTS.break_even() {
                    break;
                }
            }
        }
        assert!(reads < 200, "{reads}");
    }

    #[test]
    fn a_sample_that_hits_has_it_look_closer() {
        let h = History::default();
        (0..1_000).for_each(|_| h.miss());
        let tries = |reads: usize| {
            let tried =
                |_: &usize| h.decide(NowaitPolicy::Adaptive, || COSTS) == CacheDecision::Try;
            (0..reads).filter(tried).count()
        };
        assert_eq!(tries(64), 2);
        h.hit();
        assert_eq!(tries(32), 32);
        // The closer look ends if no further read hits.
        assert_eq!(tries(64), 2);
        // Results that the engine reports without a try change the estimate, and start no closer
        // look.
        h.record(true);
        assert_eq!(tries(64), 2);
    }

    #[test]
    fn hits_settle_without_writing() {
        let h = History::default();
        h.miss();
        (0..1_000).for_each(|_| h.hit());
        let settled = h.rate.load(Relaxed);
        h.hit();
        assert_eq!(h.rate.load(Relaxed), settled);
        assert_eq!(h.recent().hit_rate, 1.0);
    }

    #[test]
    fn it_stays_a_rate_after_millions_of_answers_of_many_threads() {
        let answers: u32 = if cfg!(miri) { 400 } else { 1_000_000 };
        let h = History::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let h = &h;
                scope.spawn(move || {
                    for i in 0..answers {
                        // Long runs of hits and of misses, so that both limits are reached. Threads
                        // are out of step.
                        if (i / (answers / 100) + thread).is_multiple_of(2) {
                            h.hit();
                        } else {
                            h.miss();
                        }
                        let rate = h.rate.load(Relaxed);
                        assert!(rate <= ONE, "{rate}");
                    }
                });
            }
        });
        for (all_cached, end) in [(true, 1.0), (false, 0.0)] {
            (0..2_000).for_each(|_| h.record(all_cached));
            assert!((h.recent().hit_rate - end).abs() < 0.001);
        }
    }
}
