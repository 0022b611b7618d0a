//! A file's hit history: whether trying the page cache first has paid lately.
//!
//! Shared by all clones of a handle, two words, no lock. In a steady state of hits nothing is
//! written, so threads that read one hot file on many cores share the line without fighting.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::cost::Costs;

/// A rate of 1.
const ONE: u32 = 1 << 16;
/// A new answer weighs 1/64: the estimate forgets in some hundred answers, and near a rate of 5 %,
/// where the break-even mostly lies, it is right within 2 points.
const WEIGHT: u32 = 6;
/// A file that has stopped trying tries one read in this many, to notice when that changes,
const SAMPLE: u32 = 32;
/// and if that one hits, so many reads in a row: one answer in 32 would take thousands of reads to
/// convince the estimate.
const CLOSER: u32 = 32;

/// What a file's reads found in the page cache, and whether the next one should try it first. Files
/// keep one of their own; a program that makes [`cached`](crate::read::cached) reads of bare descriptors
/// can keep one for each.
///
/// ```
/// use nowait::cost::Costs;
/// use nowait::read::{CacheDecision, History, NowaitPolicy};
/// let history = History::new();
/// for _ in 0..1_000 {
///     history.miss();
/// }
/// history.decide(NowaitPolicy::Adaptive, Costs::default); // one read in 32 tries all the same
/// assert_eq!(history.decide(NowaitPolicy::Adaptive, Costs::default), CacheDecision::Skip);
/// ```
#[derive(Debug)]
pub struct History {
    /// Moving average of hits, in 1/65536. Starts at 1: the first reads always try.
    rate: AtomicU32,
    /// Reads since a closer look began, while trying does not pay. From `CLOSER` on it is over.
    reads: AtomicU32,
}

/// A file's history, as it stands: [`File::history`](crate::File::history).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recent {
    /// The estimated share of reads that the page cache could serve whole, 0 to 1; recent reads
    /// weigh more. 1 for a file that was never read.
    pub hit_rate: f64,
}

/// What the history says of the next read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheDecision {
    /// Trying the page cache first pays, or nothing is known yet.
    Try,
    /// NowaitPolicy has not paid lately: skip it.
    Skip,
    /// No read is to try: [`NowaitPolicy::Never`].
    Never,
}

/// Who says whether a file's reads try the page cache first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NowaitPolicy {
    /// Each file's own history, beside what a hit, a miss and a handoff cost here.
    #[default]
    Adaptive,
    /// All reads try: for a program that would rather pay for misses than have one hit wait.
    Always,
    /// No read tries: for data that is known to be cold, and to measure beside.
    Never,
}

impl Default for History {
    fn default() -> History {
        History::new()
    }
}

impl History {
    /// Of a file that was never read: the first reads try.
    pub const fn new() -> History {
        History {
            rate: AtomicU32::new(ONE),
            reads: AtomicU32::new(CLOSER),
        }
    }

    /// As if the file was never read: the descriptor is another file's now.
    pub fn forget(&self) {
        self.rate.store(ONE, Relaxed);
        self.reads.store(CLOSER, Relaxed);
    }

    /// A try found everything.
    pub fn hit(&self) {
        if (ONE - self.rate.load(Relaxed)) >> WEIGHT == 0 {
            // Hits have settled: nothing is written, nor looked for.
            return;
        }
        self.found(true);
        if self.reads.load(Relaxed) > CLOSER {
            self.reads.store(0, Relaxed);
        }
    }

    /// A try found a part or nothing.
    pub fn miss(&self) {
        self.found(false);
    }

    /// Whether the page cache had everything that a read wanted, tried or not.
    pub(crate) fn found(&self, everything: bool) {
        let rate = self.rate.load(Relaxed);
        let new = if everything {
            rate + ((ONE - rate) >> WEIGHT)
        } else {
            rate - (rate >> WEIGHT)
        };
        if new != rate {
            self.rate.store(new, Relaxed);
        }
    }

    /// Whether the next read should try. While trying does not pay it counts reads: one in
    /// `SAMPLE` is tried all the same, and if that hits, the next `CLOSER`.
    pub fn decide(&self, policy: NowaitPolicy, costs: impl FnOnce() -> Costs) -> CacheDecision {
        match policy {
            NowaitPolicy::Adaptive => {}
            NowaitPolicy::Always => return CacheDecision::Try,
            NowaitPolicy::Never => return CacheDecision::Never,
        }
        let recent = self.recent();
        // A file that always hits needs no arithmetic.
        if recent.hit_rate == 1.0 || recent.hit_rate >= costs().break_even() {
            return CacheDecision::Try;
        }
        let reads = self.reads.load(Relaxed);
        let next = reads.checked_add(1).unwrap_or(CLOSER);
        self.reads.store(next, Relaxed);
        if reads < CLOSER || reads.is_multiple_of(SAMPLE) {
            CacheDecision::Try
        } else {
            CacheDecision::Skip
        }
    }

    /// Whether trying pays by what is known now. Counts nothing.
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

    pub(crate) fn recent(&self) -> Recent {
        // `hit` stops a little short of 1 by rounding; that is 1 to a reader.
        let rate = self.rate.load(Relaxed);
        let top = ONE - (1 << WEIGHT);
        Recent {
            hit_rate: if rate > top {
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

    /// Break-even at one half.
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
        // Only what is tried is learnt from.
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
        // Not for ever, if that was all.
        assert_eq!(tries(64), 2);
        // What the engine found without a try is learnt as well, but asks for no closer look.
        h.found(true);
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
        let h = History::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let h = &h;
                scope.spawn(move || {
                    for i in 0..1_000_000u32 {
                        // Long runs of each, so that both ends are met; never in step.
                        if (i / 10_000 + thread) % 2 == 0 {
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
        for (everything, end) in [(true, 1.0), (false, 0.0)] {
            (0..2_000).for_each(|_| h.found(everything));
            assert!((h.recent().hit_rate - end).abs() < 0.001);
        }
    }
}
