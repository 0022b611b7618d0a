//! Counters of what the read path and the engine did, readable at any time.
//!
//! Counting is cheap enough for a path of one microsecond: each thread adds to a cache line of its
//! own, and only one read in 64 is timed.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

/// Threads share this many counter lines; a power of two.
const SHARDS: usize = 16;
/// One read in this many is timed.
const TIMED: u32 = 64;
/// Buckets of a [`Histogram`]: bucket `i` counts times of 2^i to 2^(i+1) ns.
pub const BUCKETS: usize = 40;

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident = $variant:ident,)*) => {
        /// What is counted.
        #[derive(Clone, Copy)]
        pub(crate) enum Count { $($variant),* }

        const COUNTS: usize = [$(Count::$variant),*].len();

        /// What an engine and its files have done since the engine was made.
        ///
        /// Counts are exact once the threads that did the work are done; a snapshot taken
        /// meanwhile may miss the last few.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $field: u64,)*
            /// How long one in 64 callers was kept by the read path: tries, questions, inline
            /// copies and submission.
            pub stall: Histogram,
            /// How long one in 64 queued operations took from submission to completion.
            pub latency: Histogram,
        }

        impl Counters {
            /// The sums, now.
            pub(crate) fn snapshot(&self) -> Stats {
                Stats {
                    $($field: self.sum(Count::$variant),)*
                    stall: self.stall.snapshot(),
                    latency: self.latency.snapshot(),
                }
            }
        }
    };
}

counters! {
    /// Reads that the page cache served whole, in the caller.
    hits = Hits,
    /// Bytes of those.
    hit_bytes = HitBytes,
    /// Reads of which the page cache had the first part.
    prefixes = Prefixes,
    /// Bytes of those first parts.
    prefix_bytes = PrefixBytes,
    /// Tries and questions that found nothing.
    misses = Misses,
    /// Reads that did not try because their file's history said it would not pay.
    skipped = Skipped,
    /// Reads of memory-backed files, done in the caller.
    inline = Inline,
    /// Operations given to the engine.
    handoffs = Handoffs,
    /// Readaheads that workers began for strict files that are read sequentially.
    aheads = Aheads,
    /// Residency said yes of a strict read, and the NOWAIT read that followed found nothing, or
    /// only a first part: the pages have gone meanwhile, or were still on their way. Such a read
    /// counts under `misses` or `prefixes` as well. Where NOWAIT is refused (overlayfs) the read
    /// that follows is a plain one, which waits, and nothing is counted.
    races = Races,
    /// The kernel said end of file where the file goes on (kernels 5.9, 5.10).
    false_ends = FalseEnds,
    /// Files on which `RWF_NOWAIT` was found to be refused.
    refusals = Refusals,
    /// Submissions that met a full engine.
    full = Full,
    /// Operations the ring completed.
    ring = Ring,
    /// Operations a worker completed.
    workers = Workers,
    /// Turns that workers took at scans and walks: a piece of a directory each.
    turns = Turns,
    /// Ring completions that were there when submission returned: page cache hits.
    ring_hits = RingHits,
    /// Bytes that the engine read or wrote.
    engine_bytes = EngineBytes,
    /// Writes done in the caller with `RWF_NOWAIT`.
    write_hits = WriteHits,
    /// Operations that ended with an error.
    errors = Errors,
}

/// Times, in buckets of powers of two: bucket `i` counts those from 2^i up to 2^(i+1) ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// How many times fell into each bucket.
    pub buckets: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: [0; BUCKETS],
        }
    }
}

impl Histogram {
    /// How many times were taken.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// An upper bound of the `q` quantile (0 to 1): the end of its bucket. `None` if no time was
    /// taken.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from a float this is the nearest number that there is"
    )]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let rank = (self.count() as f64 * q).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += n;
            if *n > 0 && seen >= rank {
                return Some(Duration::from_nanos(2 << i));
            }
        }
        None
    }
}

#[derive(Debug)]
struct Buckets([AtomicU64; BUCKETS]);

impl Default for Buckets {
    fn default() -> Buckets {
        Buckets(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Buckets {
    fn add(&self, ns: u64) {
        let i = (ns.max(1).ilog2() as usize).min(BUCKETS - 1);
        self.0[i].fetch_add(1, Relaxed);
    }

    fn snapshot(&self) -> Histogram {
        Histogram {
            buckets: std::array::from_fn(|i| self.0[i].load(Relaxed)),
        }
    }
}

/// The counters of one engine.
#[derive(Debug)]
pub(crate) struct Counters {
    shards: Box<[CachePadded<[AtomicU64; COUNTS]>]>,
    stall: Buckets,
    latency: Buckets,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            shards: (0..SHARDS)
                .map(|_| CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0))))
                .collect(),
            stall: Buckets::default(),
            latency: Buckets::default(),
        }
    }
}

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = const { AtomicUsize::new(0) };
        NEXT.fetch_add(1, Relaxed) % SHARDS
    };
    static TICK: Cell<u32> = const { Cell::new(0) };
}

impl Counters {
    pub(crate) fn count(&self, what: Count) {
        self.add(what, 1);
    }

    pub(crate) fn add(&self, what: Count, n: u64) {
        // A thread that is being torn down may still finish an operation.
        let shard = SHARD.try_with(|s| *s).unwrap_or(0);
        self.shards[shard][what as usize].fetch_add(n, Relaxed);
    }

    /// Two counts that belong together, by one look-up of the thread's line.
    pub(crate) fn add2(&self, one: Count, by: u64, other: Count, n: u64) {
        let shard = SHARD.try_with(|s| *s).unwrap_or(0);
        self.shards[shard][one as usize].fetch_add(by, Relaxed);
        self.shards[shard][other as usize].fetch_add(n, Relaxed);
    }

    pub(crate) fn stall(&self, ns: u64) {
        self.stall.add(ns);
    }

    pub(crate) fn latency(&self, ns: u64) {
        self.latency.add(ns);
    }

    fn sum(&self, what: Count) -> u64 {
        self.shards
            .iter()
            .map(|s| s[what as usize].load(Relaxed))
            .sum()
    }
}

/// The clock for one call in 64 of this thread, nothing for the others. Which one is left to chance
/// (a linear congruential generator's upper bits): several calls in a row for each read would
/// otherwise always time the same one of them.
pub(crate) fn sometimes_now() -> Option<Instant> {
    let next = |t: &Cell<u32>| {
        t.set(t.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        t.get()
    };
    let drawn = TICK.try_with(next).unwrap_or(u32::MAX);
    (drawn < u32::MAX / TIMED).then(Instant::now)
}

/// Nanoseconds since then.
pub(crate) fn ns_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_threads_add_up() {
        let counters = Counters::default();
        std::thread::scope(|s| {
            for _ in 0..20 {
                s.spawn(|| (0..1000).for_each(|_| counters.add(Count::HitBytes, 3)));
            }
        });
        assert_eq!(counters.snapshot().hit_bytes, 60_000);
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of calls")]
    fn each_of_several_calls_in_a_row_is_timed_now_and_then() {
        for calls in [1, 2, 3, 64] {
            let mut timed = vec![0; calls];
            for _ in 0..64_000 {
                for times in &mut timed {
                    *times += i32::from(sometimes_now().is_some());
                }
            }
            assert!(timed.iter().all(|n| (700..1_300).contains(n)), "{timed:?}");
        }
    }

    #[test]
    fn quantiles_are_upper_bounds() {
        let buckets = Buckets::default();
        assert_eq!(buckets.snapshot().quantile(0.5), None);
        (0..99).for_each(|_| buckets.add(1000));
        buckets.add(1_000_000);
        let h = buckets.snapshot();
        assert_eq!(h.quantile(0.5), Some(Duration::from_nanos(1024)));
        assert!(h.quantile(1.0).unwrap() >= Duration::from_millis(1));
    }
}
