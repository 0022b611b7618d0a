//! A file's hit history: whether trying the page cache first has paid lately.
//!
//! Shared by all clones of a handle, two words, no lock. In a steady state of hits nothing is
//! written, so threads that read one hot file on many cores share the line without fighting.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::cost::Costs;

/// A rate of 1.
const ONE: u32 = 1 << 16;
/// A new answer weighs 1/64: the estimate forgets in some hundred answers, and near a rate of 5 %,
/// where the break-even mostly lies, it is right within 2 points.
const WEIGHT: u32 = 6;
/// How many bytes of a strict file that is read sequentially are read ahead at a time.
pub(crate) const WINDOW: u64 = 2 << 20;
/// A file that has stopped trying tries one read in this many, to notice when that changes,
const SAMPLE: u32 = 32;
/// and if that one hits, so many reads in a row: one answer in 32 would take thousands of reads to
/// convince the estimate.
const CLOSER: u32 = 32;

/// What a file's reads found in the page cache, and whether the next one should try it first. Files
/// keep one of their own; a program that makes [`cached`](super::cached) reads of bare descriptors
/// can keep one for each.
///
/// ```
/// use nowait::cost::Costs;
/// use nowait::read::{Advice, History, Trying};
/// let history = History::new();
/// for _ in 0..1_000 {
///     history.miss();
/// }
/// history.advise(Trying::Adaptive, Costs::default); // one read in 32 tries all the same
/// assert_eq!(history.advise(Trying::Adaptive, Costs::default), Advice::Skip);
/// ```
#[derive(Debug)]
pub struct History {
    /// Moving average of hits, in 1/65536. Starts at 1: the first reads always try.
    rate: AtomicU32,
    /// Reads since a closer look began, while trying does not pay. From `CLOSER` on it is over.
    reads: AtomicU32,
    /// Where the last read ended, to recognise sequential ones.
    end: AtomicU64,
    /// Up to where the engine reads ahead; 0 if it does not.
    ahead: AtomicU64,
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
    /// No read is to try: [`Trying::Never`].
    Never,
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
        History::new()
    }
}

impl History {
    /// Of a file that was never read: the first reads try.
    pub const fn new() -> History {
        History {
            rate: AtomicU32::new(ONE),
            reads: AtomicU32::new(CLOSER),
            end: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
        }
    }

    /// As if the file was never read: the descriptor is another file's now.
    pub fn forget(&self) {
        self.rate.store(ONE, Relaxed);
        self.reads.store(CLOSER, Relaxed);
        self.end.store(0, Relaxed);
        self.ahead.store(0, Relaxed);
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
    pub fn advise(&self, trying: Trying, costs: impl FnOnce() -> Costs) -> Advice {
        match trying {
            Trying::Adaptive => {}
            Trying::Always => return Advice::Try,
            Trying::Never => return Advice::Never,
        }
        let recent = self.recent();
        // A file that always hits needs no arithmetic.
        if recent.hit_rate == 1.0 || recent.hit_rate >= costs().break_even() {
            return Advice::Try;
        }
        let reads = self.reads.load(Relaxed);
        let next = reads.checked_add(1).unwrap_or(CLOSER);
        self.reads.store(next, Relaxed);
        if reads < CLOSER || reads.is_multiple_of(SAMPLE) {
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
            Trying::Never => return Advice::Never,
        };
        if pays { Advice::Try } else { Advice::Skip }
    }

    /// Notes a read of a strict file, and says from where on [`WINDOW`] bytes should be read ahead
    /// now, if any should.
    ///
    /// It begins with a read that goes on where the last one ended and was not cached, and goes on
    /// while reads do: the next window is asked for when half of the last one is left, so that it
    /// is there in time. The first read of a file follows nothing; a file that is cached anyway is
    /// never read ahead.
    pub(crate) fn ahead(&self, offset: u64, len: u64, missed: bool) -> Option<u64> {
        let end = offset.saturating_add(len);
        let follows = self.end.swap(end, Relaxed) == offset && offset > 0;
        if !follows {
            return None;
        }
        let upto = self.ahead.load(Relaxed);
        let within = (end..=end.saturating_add(2 * WINDOW)).contains(&upto);
        let from = match (within, missed) {
            (true, _) if upto - end >= WINDOW / 2 => return None,
            (true, _) => upto,
            (false, true) => end,
            (false, false) => return None,
        };
        // Of reads in several threads one asks.
        self.ahead
            .compare_exchange(upto, from.saturating_add(WINDOW), Relaxed, Relaxed)
            .is_ok()
            .then_some(from)
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
        assert_eq!(h.advise(Trying::Adaptive, || COSTS), Advice::Try);
        for _ in 0..256 {
            h.miss();
        }
        let tries = (0..320)
            .filter(|_| h.advise(Trying::Adaptive, || COSTS) == Advice::Try)
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
            if h.advise(Trying::Adaptive, || COSTS) == Advice::Try {
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
            let tried = |_: &usize| h.advise(Trying::Adaptive, || COSTS) == Advice::Try;
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
        let answers: u32 = if cfg!(miri) { 400 } else { 1_000_000 };
        let h = History::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let h = &h;
                scope.spawn(move || {
                    for i in 0..answers {
                        // Long runs of each, so that both ends are met; never in step.
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
        for (everything, end) in [(true, 1.0), (false, 0.0)] {
            (0..2_000).for_each(|_| h.found(everything));
            assert!((h.recent().hit_rate - end).abs() < 0.001);
        }
    }

    #[test]
    fn reads_in_sequence_are_read_ahead_before_they_wait() {
        let h = History::default();
        const LEN: u64 = 16 << 10;
        assert_eq!(
            h.ahead(0, LEN, true),
            None,
            "the first read follows nothing"
        );
        assert_eq!(h.ahead(LEN, LEN, false), None, "it is cached");
        assert_eq!(h.ahead(2 * LEN, LEN, true), Some(3 * LEN));
        let mut upto = 3 * LEN + WINDOW;
        for offset in (3 * LEN..10 * WINDOW).step_by(LEN as usize) {
            // What is in flight is missed, and asked for once all the same.
            if let Some(from) = h.ahead(offset, LEN, offset % (4 * LEN) == 0) {
                assert_eq!(from, upto, "windows follow each other");
                upto += WINDOW;
            }
            assert!(upto >= offset + LEN + WINDOW / 2, "{offset}: too late");
            assert!(upto <= offset + LEN + 2 * WINDOW, "{offset}: too far");
        }
        assert_eq!(h.ahead(LEN, LEN, true), None, "elsewhere");
        assert_eq!(h.ahead(2 * LEN, LEN, true), Some(3 * LEN), "anew");
    }

    #[test]
    fn reads_longer_than_a_window_are_read_ahead_too() {
        let h = History::default();
        let len = 2 * WINDOW;
        h.ahead(0, len, true);
        assert_eq!(h.ahead(len, len, true), Some(2 * len));
        assert_eq!(h.ahead(2 * len, len, true), Some(3 * len));
        assert_eq!(h.ahead(u64::MAX, len, true), None, "no overflow");
        assert_eq!(h.ahead(u64::MAX, len, true), Some(u64::MAX));
    }
}
