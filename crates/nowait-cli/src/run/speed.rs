//! The speed of a walk beside that of the program alone. On a disk that moves a head, two that read in different orders can be
//! slower than one.

use std::time::{Duration, Instant};

/// The speed at which a walk and the program together read inodes.
#[derive(Debug, Default)]
pub struct Together {
    inodes: u64,
    /// The time when [`FIRST`] inodes were read, and the calls of the program alone until then.
    since: Option<(Instant, u64)>,
    /// The number of checks that were made.
    checks: usize,
}

/// The mean time of an inode that a walk and the program together have read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mean {
    /// The time of an inode.
    pub per_inode: Duration,
    /// The time that the program may take for an inode alone at most, in percent of `per_inode`, if the walk is of no use.
    percent: u32,
}

/// The program's time and calls of stat(2) in directories that no walk has read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone {
    /// The time and the calls when the program entered the directory that it is in. `None` if a walk has read it.
    since: Option<(Instant, u64)>,
    time: Duration,
    stats: u64,
    /// The number of directories in which the program waited for a disk.
    waits: u32,
}

/// The inodes that a walk reads while its workers begin one after another.
const FIRST: u64 = 1024;
/// The numbers of inodes after which the mean time is taken, and the percentages of [`Mean`]. Few inodes decide only if the
/// difference is large.
const CHECKS: [(u64, u32); 4] = [(512, 50), (1024, 67), (2048, 80), (4096, 100)];
/// The program's calls of stat(2) and waits after which its speed is known.
const STATS: u64 = 16;
const WAITS: u32 = 4;

impl Together {
    /// Adds inodes that the walk has read. `alone` is the number of calls of the program in directories that no walk has read.
    /// Returns the mean time of an inode if enough were read since the last one.
    pub fn add(&mut self, inodes: usize, alone: u64, now: Instant) -> Option<Mean> {
        self.inodes += inodes as u64;
        if self.inodes < FIRST {
            return None;
        }
        let (since, before) = *self.since.get_or_insert((now, alone));
        let read = self.inodes - FIRST;
        let due = CHECKS.iter().rposition(|&(inodes, _)| read >= inodes)?;
        if due < self.checks {
            return None;
        }
        self.checks = due + 1;
        let (inodes, percent) = CHECKS[due];
        let inodes = inodes + alone.saturating_sub(before);
        Some(Mean {
            per_inode: mean(now.saturating_duration_since(since), inodes),
            percent,
        })
    }
}

impl Mean {
    /// Returns true if it is the last one.
    pub fn is_last(self) -> bool {
        self.percent == 100
    }

    /// Returns true if the program alone, which takes this time for an inode, is faster.
    pub fn is_slower_than(self, alone: Duration) -> bool {
        alone < self.per_inode * self.percent / 100
    }
}

fn mean(time: Duration, count: u64) -> Duration {
    time / u32::try_from(count).unwrap_or(u32::MAX)
}

impl Alone {
    /// Notes that the program has entered a directory, and if it waited for a disk in the last one.
    pub fn entered(&mut self, is_read: bool, has_waited: bool, now: Instant, stats: u64) {
        if self.since.is_some() {
            (self.time, self.stats) = self.sum(now, stats);
            self.waits += u32::from(has_waited);
        }
        self.since = (!is_read).then_some((now, stats));
    }

    fn sum(&self, now: Instant, stats: u64) -> (Duration, u64) {
        let Some((then, before)) = self.since else {
            return (self.time, self.stats);
        };
        let time = self.time + now.saturating_duration_since(then);
        (time, self.stats + stats.saturating_sub(before))
    }

    /// The number of calls of stat(2) so far.
    pub fn stats(&self, now: Instant, stats: u64) -> u64 {
        self.sum(now, stats).1
    }

    /// The mean time between two calls since an earlier state, if it is known: from a time of `least` or more.
    pub fn per_stat(
        &self,
        before: &Alone,
        least: Duration,
        now: Instant,
        stats: u64,
    ) -> Option<Duration> {
        let (time, stats) = self.sum(now, stats);
        let (time, stats) = (time.saturating_sub(before.time), stats - before.stats);
        let waits = self.waits - before.waits;
        (time >= least && stats >= STATS && waits >= WAITS).then(|| mean(time, stats))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_walk_is_measured_after_its_first_inodes() {
        let (mut together, now) = (Together::default(), Instant::now());
        let per_inode = |mean: Option<Mean>| mean.map(|mean| (mean.per_inode, mean.is_last()));
        assert_eq!(together.add(1000, 0, now), None);
        assert_eq!(together.add(24, 100, now + 900 * MS), None);
        assert_eq!(together.add(500, 200, now + 901 * MS), None);
        let mean = together.add(12, 612, now + 900 * MS + 2048 * MS);
        assert_eq!(per_inode(mean), Some((MS * 2, false)));
        assert_eq!(together.add(100, 612, now + 4000 * MS), None);
        // Two checks are due, and one is made.
        let mean = together.add(1436, 612, now + 900 * MS + 7680 * MS);
        assert_eq!(per_inode(mean), Some((MS * 3, false)));
        let mean = together.add(2048, 1100, now + 900 * MS + 5096 * MS);
        assert_eq!(per_inode(mean), Some((MS, true)));
        assert_eq!(together.add(5000, 2000, now + 9000 * MS), None);
    }

    #[test]
    fn few_inodes_decide_only_if_the_difference_is_large() {
        let slower = |percent| {
            let mean = Mean {
                per_inode: 100 * MS,
                percent,
            };
            [49, 51, 66, 68, 79, 81, 99, 101].map(|ms| mean.is_slower_than(ms * MS))
        };
        let expected = [
            [true, false, false, false, false, false, false, false],
            [true, true, true, false, false, false, false, false],
            [true, true, true, true, true, false, false, false],
            [true, true, true, true, true, true, true, false],
        ];
        assert_eq!(CHECKS.map(|(_, percent)| slower(percent)), expected);
    }

    #[test]
    fn the_program_is_measured_where_no_walk_has_been() {
        let (mut alone, now) = (Alone::default(), Instant::now());
        alone.entered(false, true, now, 50);
        alone.entered(true, true, now + 5 * MS, 100);
        let before = alone;
        alone.entered(false, true, now + 10 * MS, 200);
        for n in 1..=5 {
            alone.entered(false, true, now + n * 40 * MS, 200 + u64::from(n) * 10);
        }
        assert_eq!(alone.per_stat(&before, 200 * MS, now + 205 * MS, 251), None);
        assert_eq!(
            alone.per_stat(&before, 200 * MS, now + 310 * MS, 300),
            Some(3 * MS)
        );
        alone.entered(true, true, now + 310 * MS, 300);
        assert_eq!(
            alone.per_stat(&before, 200 * MS, now + 900 * MS, 9000),
            Some(3 * MS)
        );
        assert_eq!(alone.stats(now, 9000), 150);
    }

    #[test]
    fn a_program_that_waits_for_no_disk_is_not_measured() {
        let (mut alone, now) = (Alone::default(), Instant::now());
        let before = alone;
        for n in 0..100 {
            alone.entered(false, n % 40 == 0, now + n * 10 * MS, u64::from(n) * 500);
        }
        assert_eq!(
            alone.per_stat(&before, 200 * MS, now + 1000 * MS, 50_000),
            None
        );
    }
}
