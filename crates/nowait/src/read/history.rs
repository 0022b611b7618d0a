//! A file's hit history: whether trying the page cache first has paid lately.
//!
//! Shared by all clones of a handle, two words, no lock. In a steady state of hits nothing is
//! written, so threads that read one hot file on many cores share the line without fighting.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::cost::Costs;

/// A rate of 1.
const ONE: u32 = 1 << 16;
/// A new answer weighs 1/16: the estimate forgets in some tens of tries.
const WEIGHT: u32 = 4;
/// A file that has stopped trying tries one read in this many, to notice when that changes.
const SAMPLE: u32 = 32;

/// What a file's reads found in the page cache.
#[derive(Debug)]
pub(crate) struct History {
    /// Moving average of hits, in 1/65536. Starts at 1: the first reads always try.
    rate: AtomicU32,
    /// Reads since the last try, while trying does not pay.
    skipped: AtomicU32,
    /// Where the last read ended, to recognise sequential ones.
    end: AtomicU64,
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
pub enum Advice {
    /// Trying the page cache first pays, or nothing is known yet.
    Try,
    /// Trying has not paid lately: skip it.
    Skip,
}

/// Who says whether a file's reads try the page cache first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trying {
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
        History {
            rate: AtomicU32::new(ONE),
            skipped: AtomicU32::new(0),
            end: AtomicU64::new(0),
        }
    }
}

impl History {
    /// The page cache had everything.
    pub(crate) fn hit(&self) {
        let rate = self.rate.load(Relaxed);
        let step = (ONE - rate) >> WEIGHT;
        if step != 0 {
            self.rate.store(rate + step, Relaxed);
        }
    }

    /// The page cache had a part or nothing.
    pub(crate) fn miss(&self) {
        let rate = self.rate.load(Relaxed);
        let step = rate >> WEIGHT;
        if step != 0 {
            self.rate.store(rate - step, Relaxed);
        }
    }

    /// Whether the next read should try. Counts the tries that were skipped: one in `SAMPLE` is
    /// made all the same.
    pub(crate) fn advise(&self, trying: Trying, costs: impl FnOnce() -> Costs) -> Advice {
        match trying {
            Trying::Adaptive => {}
            Trying::Always => return Advice::Try,
            Trying::Never => return Advice::Skip,
        }
        let recent = self.recent();
        // A file that always hits needs no arithmetic.
        if recent.hit_rate == 1.0 || recent.hit_rate >= costs().break_even() {
            return Advice::Try;
        }
        let skipped = self.skipped.load(Relaxed);
        self.skipped.store(skipped.wrapping_add(1), Relaxed);
        if skipped.is_multiple_of(SAMPLE) {
            Advice::Try
        } else {
            Advice::Skip
        }
    }

    /// Whether trying pays by what is known now. Counts nothing.
    pub(crate) fn foresee(&self, trying: Trying, costs: Costs) -> Advice {
        let pays = match trying {
            Trying::Adaptive => self.recent().hit_rate >= costs.break_even(),
            Trying::Always => true,
            Trying::Never => false,
        };
        if pays { Advice::Try } else { Advice::Skip }
    }

    /// Notes a read and says whether it goes on where the last one ended. The first read of a
    /// file follows nothing.
    pub(crate) fn follows(&self, offset: u64, len: usize) -> bool {
        let end = self.end.load(Relaxed);
        self.end.store(offset + len as u64, Relaxed);
        end == offset && offset > 0
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
        hit: 1.0,
        miss: 5.0,
        handoff: 6.0,
    };

    #[test]
    fn a_new_file_tries_and_a_hopeless_one_stops_but_samples() {
        let h = History::default();
        assert_eq!(h.advise(Trying::Adaptive, || COSTS), Advice::Try);
        for _ in 0..64 {
            h.miss();
        }
        let tries = (0..320)
            .filter(|_| h.advise(Trying::Adaptive, || COSTS) == Advice::Try)
            .count();
        assert_eq!(tries, 10);
    }

    #[test]
    fn it_turns_over_within_a_thousand_reads() {
        let h = History::default();
        (0..10_000).for_each(|_| h.miss());
        let mut reads = 0;
        // Only what is tried is learnt from.
        loop {
            reads += 1;
            if h.advise(Trying::Adaptive, || COSTS) == Advice::Try {
                h.hit();
                if h.recent().hit_rate >= COSTS.break_even() {
                    break;
                }
            }
        }
        assert!(reads < 1_000, "{reads}");
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
    fn sequential_reads_follow() {
        let h = History::default();
        h.follows(4096, 4096);
        assert!(h.follows(8192, 100));
        assert!(!h.follows(0, 100));
    }
}
