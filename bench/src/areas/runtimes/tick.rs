//! A timer that fires every millisecond, and how late an event loop comes to it: its stall.
//!
//! The same timer descriptor (timerfd_create(2)) for every runtime, waited for through the runtime's
//! own poller: tokio's timers are as coarse as a millisecond, and no other runtime has the same ones.
//! Each firing counts from its own time, served or not: a loop that is held for ten milliseconds is
//! late ten times.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::areas::runtimes::tape::histogram;

/// Nanoseconds between two firings.
const PERIOD: u64 = 1_000_000;

/// The timer of one event loop.
pub struct Tick {
    fd: OwnedFd,
    counted: Mutex<Counted>,
}

struct Counted {
    /// When the next firing is due that nobody has served; 0 before the gate is open, and after the
    /// end.
    due: u64,
    lateness: Histogram<u64>,
}

impl Tick {
    pub fn new() -> io::Result<Tick> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Tick {
            fd: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            counted: Mutex::new(Counted {
                due: 0,
                lateness: histogram(),
            }),
        })
    }

    /// Begins to fire.
    pub fn begin(&self) {
        let due = now() + PERIOD;
        self.counted().due = due;
        let time = |ns: u64| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        };
        let every = Itimerspec {
            it_interval: time(PERIOD),
            it_value: time(due),
        };
        // It can fail only for times that are none.
        let _ = timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &every);
    }

    /// Serves what has fired; the event loop calls it when the descriptor is readable.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has.
    pub fn serve(&self) -> io::Result<()> {
        rustix::io::read(&self.fd, &mut [0u8; 8])?;
        self.counted().serve(now());
        Ok(())
    }

    /// The end: what has fired and was not served is as late as now.
    pub fn end(&self) {
        let mut counted = self.counted();
        counted.serve(now());
        counted.due = 0;
    }

    pub fn add_to(&self, sum: &mut Histogram<u64>) {
        // Both have the same bounds.
        let _ = sum.add(&self.counted().lateness);
    }

    fn counted(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn serve(&mut self, now: u64) {
        while self.due != 0 && self.due <= now {
            self.lateness.saturating_record(now - self.due);
            self.due += PERIOD;
        }
    }
}

impl AsFd for Tick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_firing_counts_from_its_own_time() {
        let mut counted = Counted {
            due: 10 * PERIOD,
            lateness: histogram(),
        };
        counted.serve(10 * PERIOD - 1);
        assert_eq!(counted.lateness.len(), 0);
        counted.serve(12 * PERIOD);
        assert_eq!(counted.lateness.len(), 3);
        assert!(counted.lateness.max() >= 2 * PERIOD);
        counted.serve(12 * PERIOD);
        assert_eq!(counted.lateness.len(), 3);
    }

    #[test]
    fn a_loop_that_never_comes_is_late() {
        let tick = Tick::new().unwrap();
        tick.begin();
        std::thread::sleep(std::time::Duration::from_millis(20));
        tick.end();
        let mut sum = histogram();
        tick.add_to(&mut sum);
        assert!(sum.len() >= 19, "{}", sum.len());
        assert!(sum.max() >= 18 * PERIOD);
    }
}
