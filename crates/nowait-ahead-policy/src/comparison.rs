//! Compares the program's speed in directories that were read ahead with its speed in control directories, where
//! nothing is read ahead.

use std::time::Duration;

use nowait_ahead_channel::Event;

/// The treatment of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Its inodes were read before the program came.
    ReadAhead,
    /// It was a control directory: nothing was read ahead there.
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
    /// While the walks pause: the directories that were read ahead and that the program has left
    /// since.
    pause: Option<Sum>,
    /// The number of control directories at the last pause.
    checked: u32,
    /// The program was no slower in control directories during the last pause that decided.
    gives_no_gain: bool,
}

/// The program's time and calls of stat(2) in some directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The number of directories.
    pub directories: u32,
    nanoseconds: u64,
    stats: u64,
    /// The mean nanoseconds of a call in each of the last directories.
    recent: [u64; RECENT as usize],
}

/// The number of directories whose median decides. A pause ends when the program has left so many.
const RECENT: u32 = 16;
/// The number of control directories, and of calls in them, before the comparison may be in doubt.
const MIN_CONTROLS: u32 = 4;
const MIN_CONTROL_STATS: u64 = 64;

impl Comparison {
    /// Notes that the program has entered a directory. The time in the one before counts if this one was read ahead: otherwise the
    /// program may have waited for this one.
    pub fn entered(&mut self, event: &Event, treatment: Treatment) {
        if let Some((before, time, stats)) = self.current.take()
            && treatment == Treatment::ReadAhead
        {
            let (time, stats) = (
                event.time.saturating_sub(time),
                event.stats.saturating_sub(stats),
            );
            match before {
                Treatment::ReadAhead => {
                    self.read_ahead.add(time, stats);
                    if let Some(pause) = &mut self.pause {
                        pause.add(time, stats);
                    }
                }
                Treatment::Control => self.control.add(time, stats),
                Treatment::None => {}
            }
        }
        self.current = Some((treatment, event.time, event.stats));
    }

    /// Returns true if the program was no slower in the control directories. The walks themselves
    /// may have slowed it down in the others, so a pause decides.
    pub fn is_doubtful(&self) -> bool {
        let (control, read_ahead) = (&self.control, &self.read_ahead);
        control.directories >= MIN_CONTROLS.max(self.checked * 2)
            && control.stats >= MIN_CONTROL_STATS
            && read_ahead.directories > 0
            && control.per_stat() <= read_ahead.per_stat()
    }

    /// Starts a pause of the walks.
    pub fn pause(&mut self) {
        self.pause = Some(Sum::default());
        self.checked = self.control.directories;
    }

    /// Returns true if the program has left enough directories during the pause.
    pub fn can_decide(&self) -> bool {
        self.pause.is_some_and(|pause| pause.directories >= RECENT)
    }

    /// The walks go on. Decides if the program has left enough directories.
    pub fn resume(&mut self) {
        let can_decide = self.can_decide();
        if let Some(pause) = self.pause.take().filter(|_| can_decide) {
            self.gives_no_gain = self.control.median() <= pause.median();
        }
    }

    /// Returns true if the program was no slower in the control directories than in those that it
    /// has left during a pause.
    pub fn gives_no_gain(&self) -> bool {
        self.gives_no_gain
    }

    /// The sums of the directories that were read ahead, and of the control directories.
    pub fn sums(&self) -> (Sum, Sum) {
        (self.read_ahead, self.control)
    }
}

impl Sum {
    /// Adds a directory, if the program has called stat(2) there.
    fn add(&mut self, nanoseconds: u64, stats: u64) {
        let Some(per_stat) = nanoseconds.checked_div(stats) else {
            return;
        };
        self.recent[(self.directories % RECENT) as usize] = per_stat;
        self.directories += 1;
        self.nanoseconds = self.nanoseconds.saturating_add(nanoseconds);
        self.stats = self.stats.saturating_add(stats);
    }

    /// The median of the nanoseconds of a call over the last directories. `None` without any.
    fn median(&self) -> Option<u64> {
        let mut recent = self.recent;
        let recent = &mut recent[..RECENT.min(self.directories) as usize];
        recent.sort_unstable();
        recent.get(recent.len() / 2).copied()
    }

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
            tid: 1,
            fd: -1,
            id: (0, 0),
            time,
            stats,
            pages: 0,
            path: Vec::new(),
        }
    }

    /// A program that goes through directories of 50 files. Each call of stat(2) takes the given
    /// time.
    fn comparison(read_ahead: u64, control: u64, directories: u64) -> Comparison {
        let mut comparison = Comparison::default();
        let (mut time, mut stats) = (0, 0);
        for n in 0..=directories {
            let (treatment, each) = match n % 16 {
                0 => (Treatment::Control, control),
                // The program has waited for the next directory before it has entered it.
                7 => (Treatment::ReadAhead, 1_000_000),
                8 => (Treatment::None, 1_000_000),
                _ => (Treatment::ReadAhead, read_ahead),
            };
            comparison.entered(&event(time, stats), treatment);
            (time, stats) = (time + 50 * each, stats + 50);
        }
        comparison
    }

    #[test]
    fn readahead_is_doubtful_if_the_program_is_no_slower_without_it() {
        assert!(comparison(2000, 2000, 64).is_doubtful());
        assert!(comparison(2000, 1900, 64).is_doubtful());
        assert!(!comparison(2000, 2100, 64).is_doubtful());
        let (read_ahead, control) = comparison(2000, 2100, 64).sums();
        assert_eq!(read_ahead.per_stat(), Some(Duration::from_nanos(2000)));
        assert_eq!(control.per_stat(), Some(Duration::from_nanos(2100)));
    }

    #[test]
    fn a_few_directories_decide_nothing() {
        assert!(!comparison(2000, 1000, 48).is_doubtful());
        assert!(!Comparison::default().is_doubtful());
    }

    #[test]
    fn a_pause_decides() {
        for (per_stat, gives_no_gain) in [(1000, false), (1900, true), (2500, true)] {
            let mut comparison = comparison(2000, 1900, 64);
            comparison.pause();
            let (mut time, mut stats) = (1 << 40, 1 << 20);
            for n in 0..=u64::from(RECENT) {
                assert!(!comparison.can_decide());
                comparison.entered(&event(time, stats), Treatment::ReadAhead);
                // The walks stop after their current directory.
                time += 50 * if n < 4 { 1 << 30 } else { per_stat };
                stats += 50;
            }
            assert!(comparison.can_decide());
            comparison.resume();
            assert_eq!(comparison.gives_no_gain(), gives_no_gain);
            // It is not doubted again at once.
            assert!(!comparison.is_doubtful());
        }
    }

    #[test]
    fn a_pause_without_the_program_decides_nothing() {
        let mut comparison = comparison(2000, 1900, 64);
        comparison.pause();
        comparison.entered(&event(1 << 40, 1 << 20), Treatment::ReadAhead);
        comparison.resume();
        assert!(!comparison.gives_no_gain());
    }
}
