//! Notices that `RWF_NOWAIT` has stopped working on a file: reads of resident pages fail.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// One failed try in this many is preceded by a query of residency.
const SAMPLE: u8 = 8;
/// The number of such tries in a row that have failed although the page was resident. A writer that
/// has locked the file makes some fail.
const MAX: u8 = 16;

/// Counts tries of a file that have failed although its page was resident.
///
/// The byte is a sum: the number of failed tries since the last sample, and [`SAMPLE`] for each
/// sample in a row that was false. Threads that count at the same time may lose a count.
#[derive(Debug, Default)]
pub(crate) struct FalseMisses(AtomicU8);

impl FalseMisses {
    /// Returns true if nothing is counted.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// Returns true if the next try is a sample: its page is to be looked for first.
    pub(crate) fn is_sample(&self) -> bool {
        self.0.load(Relaxed) % SAMPLE == SAMPLE - 1
    }

    /// Counts a failed try. `was_resident` is true if it was a sample and its page was resident.
    /// Returns true if NOWAIT has stopped working.
    pub(crate) fn failed(&self, was_resident: bool) -> bool {
        let count = self.0.load(Relaxed);
        let next = match count % SAMPLE == SAMPLE - 1 {
            false => count + 1,
            true if was_resident => count / SAMPLE * SAMPLE + SAMPLE,
            true => 0,
        };
        let has_stopped = next >= SAMPLE * MAX;
        self.0.store(if has_stopped { 0 } else { next }, Relaxed);
        has_stopped
    }

    /// Records a try that has found data.
    pub(crate) fn worked(&self) {
        if self.0.load(Relaxed) != 0 {
            self.0.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_false_samples_in_a_row_count() {
        let misses = FalseMisses::default();
        let try_once = |resident: bool| misses.failed(misses.is_sample() && resident);
        let tries = u32::from(SAMPLE) * u32::from(MAX);
        for _ in 0..3 {
            assert_eq!((1..=1000).find(|_| try_once(true)), Some(tries));
        }
        assert!(!(0..1000).any(|_| try_once(false)));
        misses.worked();
        // One sample that was not resident, or one hit, and the count begins again.
        for end in [
            |misses: &FalseMisses| misses.worked(),
            |misses: &FalseMisses| {
                while !misses.is_sample() {
                    misses.failed(false);
                }
                misses.failed(false);
            },
        ] {
            assert!(!(1..tries).any(|_| try_once(true)));
            end(&misses);
        }
    }
}
