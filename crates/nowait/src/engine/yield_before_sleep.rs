//! The yields of a thread that is about to sleep. Another thread often has work for it within a few
//! yields, and a wake-up costs more.
//!
//! On a busy machine a yield lasts for the time slices of other threads, which are milliseconds. A
//! thread that sleeps gets a processor much sooner when it is woken. After such a yield the thread
//! sleeps without yields for a while.

use std::time::{Duration, Instant};

use crate::sys::sync::yield_now;

/// A yield that takes this long waited for the time slice of another thread.
const SLICE: Duration = Duration::from_millis(1);
/// The number of sleeps without yields that follow such a yield.
const SLEEPS: u32 = 1_000;

/// The yields of one thread.
#[derive(Debug)]
pub(super) struct YieldBeforeSleep {
    yields: usize,
    /// The number of sleeps that no yields precede.
    sleeps: u32,
}

impl YieldBeforeSleep {
    /// At most `yields` yields before each sleep.
    pub(super) fn new(yields: usize) -> YieldBeforeSleep {
        YieldBeforeSleep { yields, sleeps: 0 }
    }

    /// Called before each sleep. Yields until there is work.
    pub(super) fn until(&mut self, work: impl FnMut() -> bool) {
        self.until_by(work, yield_now);
    }

    fn until_by(&mut self, mut work: impl FnMut() -> bool, yield_now: impl Fn()) {
        if self.sleeps > 0 {
            self.sleeps -= 1;
            return;
        }
        for _ in 0..self.yields {
            if work() {
                return;
            }
            let began = Instant::now();
            yield_now();
            if began.elapsed() >= SLICE {
                self.sleeps = SLEEPS;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_thread_with_work_does_not_yield() {
        YieldBeforeSleep::new(4).until_by(|| true, || unreachable!("a yield"));
    }

    #[test]
    fn sleeps_after_a_long_yield_follow_no_yields() {
        let yields = Cell::new(0);
        let long = || {
            yields.set(yields.get() + 1);
            std::thread::sleep(SLICE);
        };
        let mut before_sleep = YieldBeforeSleep::new(4);
        for _ in 0..=SLEEPS {
            before_sleep.until_by(|| false, long);
        }
        assert_eq!(yields.get(), 1);
        before_sleep.until_by(|| false, long);
        assert_eq!(yields.get(), 2);
    }
}
