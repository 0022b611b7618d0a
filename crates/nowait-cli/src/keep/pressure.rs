//! Memory pressure: the kernel's trigger, and how much is given up and taken back.
//!
//! ```text
//!  a trigger ─► three quarters of what is kept stay ─► calm: 1/8 of the budget comes back, again and again
//!                     └── again pressure soon: the calm that is waited for is doubled
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The file that pressure is reported in (psi(5) of the kernel's documentation).
const FILE: &str = "/proc/pressure/memory";

/// Some process waited for memory for 200 ms within 2 s. Shorter windows need CAP_SYS_RESOURCE.
const TRIGGER: &[u8] = b"some 200000 2000000\0";

/// The time without pressure after which memory is taken back, at first and at most.
const CALM: Duration = Duration::from_secs(10);
const MAX_CALM: Duration = Duration::from_secs(320);

/// The time between two steps of taking back.
const STEP: Duration = Duration::from_secs(5);

/// Opens the trigger. It is ready for polling with POLLPRI when there is pressure.
pub fn trigger() -> io::Result<File> {
    let mut file = File::options().read(true).write(true).open(FILE)?;
    file.write_all(TRIGGER)?;
    Ok(file)
}

/// The limit that pressure sets.
#[derive(Debug)]
pub struct Pressure {
    /// The number of bytes that may be kept; `None` without a limit.
    limit: Option<u64>,
    calm: Duration,
    last: Option<Instant>,
    next_step: Option<Instant>,
    /// The time of the last step.
    eased: Option<Instant>,
    /// The number of reports since the start.
    pub reports: u64,
}

impl Pressure {
    /// No pressure yet.
    pub fn new() -> Pressure {
        Pressure {
            limit: None,
            calm: CALM,
            last: None,
            next_step: None,
            eased: None,
            reports: 0,
        }
    }

    /// There is pressure while this number of bytes is kept.
    pub fn report(&mut self, kept: u64, now: Instant) {
        self.reports += 1;
        let soon = self.eased.is_some_and(|eased| now < eased + self.calm * 4);
        // Reports of one shortage follow each other within seconds.
        let same = self.last.is_some_and(|last| now < last + CALM / 2);
        if !same {
            self.calm = match soon {
                true => (self.calm * 2).min(MAX_CALM),
                false => CALM,
            };
        }
        self.last = Some(now);
        self.next_step = Some(now + self.calm);
        let kept = self.limit.map_or(kept, |limit| limit.min(kept));
        self.limit = Some(kept / 4 * 3);
    }

    /// Takes back a part if it is time. Returns true if the limit has changed.
    pub fn recover(&mut self, budget: u64, now: Instant) -> bool {
        let (Some(limit), Some(step)) = (self.limit, self.next_step) else {
            return false;
        };
        if now < step {
            return false;
        }
        let more = limit.saturating_add((budget / 8).max(1 << 20));
        self.limit = (more < budget).then_some(more);
        self.eased = Some(now);
        self.next_step = self.limit.map(|_| now + STEP);
        true
    }

    /// The limit; `None` if there is none.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_up_at_once_and_taken_back_step_by_step() {
        let mut pressure = Pressure::new();
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        pressure.report(800, begin);
        assert_eq!(pressure.limit(), Some(600));
        pressure.report(600, after(2));
        assert_eq!(pressure.limit(), Some(450));
        let budget = 800 << 20;
        assert!(!pressure.recover(budget, after(11)));
        let mut steps = 0;
        let mut at = 12;
        while pressure.limit().is_some() {
            assert!(pressure.recover(budget, after(at)), "{at}");
            assert!(!pressure.recover(budget, after(at + 4)));
            at += 5;
            steps += 1;
        }
        assert_eq!(steps, 8);
        // Pressure that returns is waited out longer.
        pressure.report(budget, after(at));
        assert!(!pressure.recover(budget, after(at + 19)));
        assert!(pressure.recover(budget, after(at + 20)));
        // After a long calm the wait is short again.
        pressure.report(budget, after(at + 1000));
        assert!(pressure.recover(budget, after(at + 1010)));
    }
}
