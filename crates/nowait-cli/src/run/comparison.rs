//! Compares the program's speed in directories that were read ahead with its speed in those that were left alone.

use std::time::Duration;

use nowait_ahead_channel::Event;

/// The treatment of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Its inodes were read before the program came.
    ReadAhead,
    /// It was left alone for comparison.
    Control,
    /// Neither.
    None,
}

/// The speed of the program.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The treatment of the directory that the program is in, and the event of its opening.
    current: Option<(Treatment, u64, u64)>,
    read_ahead: Sum,
    control: Sum,
}

/// The program's time and calls of stat(2) in some directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The number of directories.
    pub directories: u32,
    nanoseconds: u64,
    stats: u64,
}

/// The number of control directories, and of calls in them, after which the comparison decides.
const ENOUGH: (u32, u64) = (4, 64);

impl Comparison {
    /// Notes that the program has entered a directory.
    pub fn entered(&mut self, event: &Event, treatment: Treatment) {
        if let Some((before, time, stats)) = self.current.take() {
            let sum = match before {
                Treatment::ReadAhead => Some(&mut self.read_ahead),
                Treatment::Control => Some(&mut self.control),
                Treatment::None => None,
            };
            let stats = event.stats.saturating_sub(stats);
            if let Some(sum) = sum.filter(|_| stats > 0) {
                sum.directories += 1;
                sum.nanoseconds += event.time.saturating_sub(time);
                sum.stats += stats;
            }
        }
        self.current = Some((treatment, event.time, event.stats));
    }

    /// Returns true if the program is no slower in the control directories.
    pub fn is_useless(&self) -> bool {
        let Sum {
            directories, stats, ..
        } = self.control;
        let enough = directories >= ENOUGH.0 && stats >= ENOUGH.1;
        let times = (self.control.per_stat(), self.read_ahead.per_stat());
        enough && matches!(times, (Some(control), Some(read_ahead)) if control <= read_ahead)
    }

    /// The sums of the directories that were read ahead, and of the control directories.
    pub fn sums(&self) -> (Sum, Sum) {
        (self.read_ahead, self.control)
    }
}

impl Sum {
    /// The mean time between two calls of stat(2). `None` without any.
    pub fn per_stat(&self) -> Option<Duration> {
        let mean = self.nanoseconds.checked_div(self.stats)?;
        Some(Duration::from_nanos(mean))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_ahead_channel::Kind;

    fn event(time: u64, stats: u64) -> Event {
        Event {
            kind: Kind::Opened,
            pid: 1,
            fd: -1,
            id: (0, 0),
            time,
            stats,
            path: Vec::new(),
        }
    }

    /// A program that goes through directories of 50 files, with these times for each of their calls.
    fn comparison(read_ahead: u64, control: u64, directories: u64) -> Comparison {
        let mut comparison = Comparison::default();
        let (mut time, mut stats) = (0, 0);
        for n in 0..=directories {
            let (treatment, each) = match n % 16 {
                0 => (Treatment::Control, control),
                1 => (Treatment::None, 1_000_000),
                _ => (Treatment::ReadAhead, read_ahead),
            };
            comparison.entered(&event(time, stats), treatment);
            (time, stats) = (time + 50 * each, stats + 50);
        }
        comparison
    }

    #[test]
    fn readahead_is_useless_if_the_program_is_no_slower_without_it() {
        assert!(comparison(2000, 2000, 64).is_useless());
        assert!(comparison(2000, 1900, 64).is_useless());
        assert!(!comparison(2000, 2100, 64).is_useless());
        let (read_ahead, control) = comparison(2000, 2100, 64).sums();
        assert_eq!(read_ahead.per_stat(), Some(Duration::from_nanos(2000)));
        assert_eq!(control.per_stat(), Some(Duration::from_nanos(2100)));
    }

    #[test]
    fn a_few_directories_decide_nothing() {
        assert!(!comparison(2000, 1000, 48).is_useless());
        assert!(!Comparison::default().is_useless());
    }
}
