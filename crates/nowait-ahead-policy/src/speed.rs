//! The speed of a walk, and of the program alone. On a rotating disk, two programs that read in
//! different orders can be slower than one.

use std::time::{Duration, Instant};

/// The speed at which a walk and the program read inodes at the same time.
#[derive(Debug, Default)]
pub struct WalkSpeed {
    inodes: u64,
    /// The time when the walk had read [`FIRST`] inodes, and the number of the program's calls
    /// until then in directories that no walk has read.
    since: Option<(Instant, u64)>,
    is_known: bool,
}

/// The program's time and calls of stat(2) in directories that no walk has read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgramSpeed {
    /// The time and the number of calls when the program entered its directory. `None` if a walk
    /// has read that directory.
    since: Option<(Instant, u64)>,
    time: Duration,
    stats: u64,
    /// The number of directories in which the program waited for a disk.
    waits: u32,
}

/// The number of inodes that a walk reads before it is measured, while its workers begin one after
/// another, and the number of inodes that are measured.
const FIRST: u64 = 1024;
const MEASURED: u64 = 4096;
/// The speed of the program alone is known after this time, with at least these calls of stat(2)
/// and these waits.
const TIME: Duration = Duration::from_millis(200);
const STATS: u64 = 16;
const WAITS: u32 = 4;

impl WalkSpeed {
    /// Adds inodes that the walk has read. `stats_alone` is the number of the program's calls in
    /// directories that no walk has read. Returns the mean time of an inode once, when it is known.
    pub fn add(&mut self, inodes: usize, stats_alone: u64, now: Instant) -> Option<Duration> {
        self.inodes += inodes as u64;
        if self.is_known || self.inodes < FIRST {
            return None;
        }
        let (since, before) = *self.since.get_or_insert((now, stats_alone));
        self.is_known = self.inodes >= FIRST + MEASURED;
        let inodes = stats_alone.saturating_sub(before).saturating_add(MEASURED);
        self.is_known
            .then(|| mean(now.saturating_duration_since(since), inodes))
    }
}

fn mean(time: Duration, count: u64) -> Duration {
    time / u32::try_from(count).unwrap_or(u32::MAX)
}

impl ProgramSpeed {
    /// The program has entered a directory. `is_read` says that a walk has read it, and
    /// `has_waited` that the program waited for a disk in the one before.
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
        let more = stats.saturating_sub(before);
        (time, self.stats.saturating_add(more))
    }

    /// The number of calls of stat(2) so far.
    pub fn stats(&self, now: Instant, stats: u64) -> u64 {
        self.sum(now, stats).1
    }

    /// The mean time between two calls since an earlier state, if it is known.
    pub fn per_stat(&self, before: &ProgramSpeed, now: Instant, stats: u64) -> Option<Duration> {
        let (time, stats) = self.sum(now, stats);
        let (time, stats) = (
            time.saturating_sub(before.time),
            stats.saturating_sub(before.stats),
        );
        let waits = self.waits - before.waits;
        (time >= TIME && stats >= STATS && waits >= WAITS).then(|| mean(time, stats))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_walk_is_measured_after_its_first_inodes() {
        let (mut walk_speed, now) = (WalkSpeed::default(), Instant::now());
        assert_eq!(walk_speed.add(1000, 0, now), None);
        assert_eq!(walk_speed.add(24, 100, now + 900 * MS), None);
        assert_eq!(walk_speed.add(4000, 500, now + 901 * MS), None);
        let time = now + 900 * MS + 5096 * MS;
        assert_eq!(walk_speed.add(96, 1100, time), Some(MS * 5096 / 5096));
        assert_eq!(walk_speed.add(5000, 2000, now + 9000 * MS), None);
    }

    #[test]
    fn the_program_is_measured_where_no_walk_has_been() {
        let (mut program_speed, now) = (ProgramSpeed::default(), Instant::now());
        program_speed.entered(false, true, now, 50);
        program_speed.entered(true, true, now + 5 * MS, 100);
        let before = program_speed;
        program_speed.entered(false, true, now + 10 * MS, 200);
        for n in 1..=5 {
            program_speed.entered(false, true, now + n * 40 * MS, 200 + u64::from(n) * 10);
        }
        assert_eq!(program_speed.per_stat(&before, now + 205 * MS, 251), None);
        assert_eq!(
            program_speed.per_stat(&before, now + 310 * MS, 300),
            Some(3 * MS)
        );
        program_speed.entered(true, true, now + 310 * MS, 300);
        assert_eq!(
            program_speed.per_stat(&before, now + 900 * MS, 9000),
            Some(3 * MS)
        );
        assert_eq!(program_speed.stats(now, 9000), 150);
    }

    #[test]
    fn a_program_that_waits_for_no_disk_is_not_measured() {
        let (mut program_speed, now) = (ProgramSpeed::default(), Instant::now());
        let before = program_speed;
        for n in 0..100 {
            program_speed.entered(false, n % 40 == 0, now + n * 10 * MS, u64::from(n) * 500);
        }
        assert_eq!(
            program_speed.per_stat(&before, now + 1000 * MS, 50_000),
            None
        );
    }
}
