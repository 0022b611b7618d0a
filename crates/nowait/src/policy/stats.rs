//! Counters of the read path and the engine, readable at any time.
//!
//! Counting is cheap enough for a path that takes half a microsecond: a thread adds to its own
//! cache lines without a locked instruction, and only one read in 64 is timed.

use std::cell::Cell;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Instant;

use crossbeam_utils::CachePadded;

/// The number of lines of counters. Each of the first threads has one for itself.
const SHARDS: usize = 32;
/// The line of the threads that have none of their own.
const SHARED: usize = 0;
/// One read in this many is timed.
const TIMED: u32 = 64;

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident = $variant:ident,)*) => {
        /// The counters.
        #[derive(Clone, Copy)]
        pub(crate) enum Count { $($variant),* }

        const COUNTS: usize = [$(Count::$variant),*].len();

        /// The work of an engine and its files since the engine was created.
        ///
        /// Counts are exact after the threads that did the work have ended it. A snapshot taken
        /// earlier may miss the last few.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Counters {
            /// The current sums.
            pub(crate) fn snapshot(&self) -> Stats {
                Stats {
                    $($field: self.sum(Count::$variant),)*
                }
            }
        }
    };
}

counters! {
    /// Reads that the page cache served completely, in the calling thread.
    hits = Hits,
    /// Bytes of such reads.
    hit_bytes = HitBytes,
    /// Partial hits: reads of which the page cache had a leading part.
    prefixes = Prefixes,
    /// Bytes of those leading parts.
    prefix_bytes = PrefixBytes,
    /// Tries and residency queries that found nothing.
    misses = Misses,
    /// Reads that did not try because of the file's history.
    skipped = Skipped,
    /// Reads of memory-backed files, done in the calling thread.
    inline = Inline,
    /// Operations handed to the engine.
    handoffs = Handoffs,
    /// Readaheads that workers started for sequential reads of strict files.
    aheads = Aheads,
    /// Strict reads whose range was resident, and whose NOWAIT read then found nothing or only a
    /// leading part. The pages were evicted meanwhile, or were still being read. Such a read also
    /// counts as `misses` or `prefixes`. If NOWAIT is refused (overlayfs), the read is an ordinary
    /// one, which waits, and nothing is counted here.
    races = Races,
    /// Reads for which the kernel returned zero before the end of the file (Linux 5.9 and 5.10).
    false_ends = FalseEnds,
    /// Files on which `RWF_NOWAIT` was refused.
    refusals = Refusals,
    /// Files on which `RWF_NOWAIT` has stopped working: reads of resident pages have failed with
    /// EAGAIN. Residency is queried before each further read of the file.
    stopped = Stopped,
    /// Submissions to a full engine.
    full = Full,
    /// Operations completed by the ring.
    ring = Ring,
    /// Operations completed by workers.
    workers = Workers,
    /// Pieces of scans and walks done by workers.
    turns = Turns,
    /// Ring completions that were available when the submission returned: page cache hits.
    ring_hits = RingHits,
    /// Bytes read or written by the engine.
    engine_bytes = EngineBytes,
    /// Writes done in the calling thread with `RWF_NOWAIT`.
    write_hits = WriteHits,
    /// Operations that failed.
    errors = Errors,
}

/// The counters of one engine.
#[derive(Debug)]
pub(crate) struct Counters {
    shards: Box<[CachePadded<[AtomicU64; COUNTS]>; SHARDS]>,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            shards: Box::new(std::array::from_fn(|_| {
                CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0)))
            })),
        }
    }
}

/// The line of counters that a thread writes to, in each engine.
struct Line(usize);

/// Bit `i` is set while a thread has line `i` for itself.
static TAKEN: AtomicU64 = AtomicU64::new(1 << SHARED);

impl Line {
    /// Takes a line that no other thread has. All threads that find none share one.
    fn take() -> Line {
        let free = |taken: u64| {
            let line = taken.trailing_ones() as usize;
            (line < SHARDS).then_some(taken | 1 << line)
        };
        // Acquire: the counts of the thread that had the line before are seen.
        TAKEN
            .fetch_update(Acquire, Relaxed, free)
            .map_or(Line(SHARED), |taken| Line(taken.trailing_ones() as usize))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The thread may complete an operation while its other thread-locals are destroyed.
        LINE.set(SHARED);
        if self.0 != SHARED {
            TAKEN.fetch_and(!(1 << self.0), Release);
        }
    }
}

thread_local! {
    /// The line of this thread, or `SHARDS` before it counts for the first time. A thread-local without a
    /// destructor is found faster.
    static LINE: Cell<usize> = const { Cell::new(SHARDS) };
    static TAKEN_LINE: Line = Line::take();
    static TICK: Cell<u32> = const { Cell::new(0) };
}

/// Takes a line for this thread.
#[cold]
fn take_line() -> usize {
    let line = TAKEN_LINE.try_with(|line| line.0).unwrap_or(SHARED);
    LINE.set(line);
    line
}

/// Adds to a counter. `alone` is true if no other thread adds to it.
#[inline]
fn add(counter: &AtomicU64, n: u64, alone: bool) {
    if alone {
        // A locked instruction costs 5 to 10 ns, a hundredth of a hit.
        counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
    } else {
        counter.fetch_add(n, Relaxed);
    }
}

impl Counters {
    pub(crate) fn count(&self, what: Count) {
        self.add(what, 1);
    }

    #[inline]
    pub(crate) fn add(&self, what: Count, n: u64) {
        let (line, alone) = self.line();
        add(&line[what as usize], n, alone);
    }

    /// Adds to two counters with one look-up of the thread's line.
    #[inline]
    pub(crate) fn add2(&self, one: Count, by: u64, other: Count, n: u64) {
        let (line, alone) = self.line();
        add(&line[one as usize], by, alone);
        add(&line[other as usize], n, alone);
    }

    /// Counts a read that the page cache served.
    #[inline]
    pub(crate) fn hit(&self, bytes: usize) {
        self.add2(Count::Hits, 1, Count::HitBytes, bytes as u64);
    }

    /// The calling thread's line. True if no other thread writes to it.
    #[inline]
    fn line(&self) -> (&[AtomicU64; COUNTS], bool) {
        let line = LINE.get();
        match self.shards.get(line) {
            Some(counters) => (counters, line != SHARED),
            None => self.first_line(),
        }
    }

    #[cold]
    fn first_line(&self) -> (&[AtomicU64; COUNTS], bool) {
        let line = take_line();
        (&self.shards[line], line != SHARED)
    }

    fn sum(&self, what: Count) -> u64 {
        self.shards
            .iter()
            .map(|s| s[what as usize].load(Relaxed))
            .sum()
    }
}

/// Returns true for one call in 64 of this thread, which is to be timed. The call is chosen at random (by the
/// upper bits of a linear congruential generator). Otherwise, if each read makes several calls in a row, always
/// the same one of them would be timed.
#[inline]
pub(crate) fn is_timed() -> bool {
    let next = |t: &Cell<u32>| {
        t.set(t.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        t.get()
    };
    TICK.with(next) < u32::MAX / TIMED
}

/// Returns the time for one call in 64 of this thread, and `None` for the others.
pub(crate) fn sometimes_now() -> Option<Instant> {
    is_timed().then(Instant::now)
}

/// The nanoseconds since `start`.
pub(crate) fn ns_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn counts_of_many_threads_add_up() {
        let counters = Counters::default();
        // More threads than lines, all at once. They give their lines to those of the next round.
        let threads = 2 * SHARDS;
        let adds = if cfg!(miri) { 10 } else { 50_000 };
        for round in 1..=3 {
            let all_here = Barrier::new(threads);
            std::thread::scope(|s| {
                for _ in 0..threads {
                    s.spawn(|| {
                        counters.add(Count::HitBytes, 3);
                        all_here.wait();
                        (1..adds).for_each(|_| counters.add(Count::HitBytes, 3));
                    });
                }
            });
            let expected = round * threads as u64 * adds * 3;
            assert_eq!(counters.snapshot().hit_bytes, expected);
        }
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
}
