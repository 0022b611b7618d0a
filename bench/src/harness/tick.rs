//! A timer that fires every millisecond, and the lateness of the event loop that serves it.
//!
//! Every runtime waits for the same kind of descriptor (timerfd_create(2)) with its own poller,
//! because tokio's timers have a resolution of a millisecond, and other runtimes have other timers.
//! Each expiry counts from its own time: an event loop that is blocked for ten milliseconds is late
//! for ten expiries.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use super::percentiles::histogram;

/// Nanoseconds between two firings.
const PERIOD: u64 = 1_000_000;

/// The timer of one event loop.
pub struct Tick {
    fd: OwnedFd,
    counted: Mutex<Counted>,
}

struct Counted {
    /// The time of the first expiry that is not served; 0 before the gate opens and after the end.
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

    /// Starts the timer.
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
        // The call can fail only for invalid times.
        let _ = timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &every);
    }

    /// Serves all expiries. The event loop calls it when the descriptor is readable.
    ///
    /// # Errors
    /// `WouldBlock` if the timer has not expired.
    pub fn serve(&self) -> io::Result<()> {
        rustix::io::read(&self.fd, &mut [0u8; 8])?;
        self.counted().serve(now());
        Ok(())
    }

    /// Ends the tick. Expiries that were not served count with their lateness until now.
    pub fn end(&self) {
        let mut counted = self.counted();
        counted.serve(now());
        counted.due = 0;
    }

    pub fn add_to(&self, sum: &mut Histogram<u64>) {
        // An error is not possible: both histograms have the same bounds.
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

/// Serves the timer in a task of tokio until the runtime ends.
pub async fn on_tokio(tick: impl Deref<Target = Tick>) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe, for types that change their descriptor; `Tick` does not"
    )]
    let timer = AsyncFd::new(tick.as_fd())?;
    loop {
        let mut ready = timer.readable().await?;
        // A timer that has not fired is waited for again.
        let _ = ready.try_io(|_| tick.serve());
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
    fn every_expiry_counts_from_its_own_time() {
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
    fn a_loop_that_never_serves_is_late() {
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
