//! The number of reads in flight, by measurement: it grows while the throughput grows.

use std::time::{Duration, Instant};

/// The first number of reads in flight.
const FIRST: usize = 8;
/// The largest number. Each read has a thread.
pub const LARGEST: usize = 64;
/// A measurement takes at least this long, and until each read that was in flight has ended twice.
const SHORTEST: Duration = Duration::from_millis(10);
/// The throughput with twice as many reads must be this many times higher.
const GROWTH: f64 = 1.2;
/// The time after which a larger number is tried again. Another program may have used the device.
const AGAIN: Duration = Duration::from_secs(1);

/// The number of reads in flight, and the measurement that runs.
#[derive(Debug)]
pub struct Depth {
    now: usize,
    /// The throughput with half as many reads, in bytes per second.
    with_half: f64,
    /// The beginning of the measurement, and what has arrived since.
    since: Instant,
    bytes: u64,
    reads: usize,
    /// The time at which a larger number was found to be no faster.
    settled: Option<Instant>,
}

impl Depth {
    /// The first number, not measured.
    pub fn new(now: Instant) -> Depth {
        Depth {
            now: FIRST,
            with_half: 0.0,
            since: now,
            bytes: 0,
            reads: 0,
            settled: None,
        }
    }

    /// The number of reads that may be in flight.
    pub fn get(&self) -> usize {
        self.now
    }

    /// Begins the measurement anew, because something else than the device limits the reads.
    pub fn restart(&mut self, now: Instant) {
        (self.since, self.bytes, self.reads) = (now, 0, 0);
    }

    /// Counts a read that has ended. Doubles the number if the throughput was higher than with half
    /// as many, and halves it otherwise.
    pub fn ended(&mut self, bytes: u64, now: Instant) {
        self.bytes += bytes;
        self.reads += 1;
        let took = now - self.since;
        if took < SHORTEST || self.reads < 2 * self.now {
            return;
        }
        let rate = self.bytes as f64 / took.as_secs_f64();
        self.restart(now);
        let again = match self.settled {
            Some(at) if now - at < AGAIN => return,
            settled => settled.is_some(),
        };
        if self.now < LARGEST && (again || rate > self.with_half * GROWTH) {
            self.with_half = rate;
            self.now *= 2;
            self.settled = None;
            return;
        }
        if !again && rate <= self.with_half * GROWTH {
            self.now = (self.now / 2).max(FIRST);
        }
        self.settled = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number after a second of a device that serves `at_once` reads of 1 ms at a time.
    fn after(at_once: usize) -> usize {
        let mut now = Instant::now();
        let mut depth = Depth::new(now);
        for _ in 0..1000 {
            now += Duration::from_millis(1);
            for _ in 0..depth.get().min(at_once) {
                depth.ended(1 << 20, now);
            }
        }
        depth.get()
    }

    #[test]
    fn the_number_grows_while_the_throughput_grows() {
        assert_eq!(after(1), FIRST);
        assert_eq!(after(FIRST), FIRST);
        assert_eq!(after(32), 32);
        assert_eq!(after(1000), LARGEST);
    }
}
