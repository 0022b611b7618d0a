//! One measurement: a contender reads blocks until its time is over.

use std::time::{Duration, Instant};

use super::file::DemoFile;
use super::way::{BLOCK, Way};
use crate::problem::Problem;
use crate::scramble::{mix, permute};
use crate::stop::Stop;

/// The time of one turn.
const TIME: Duration = Duration::from_millis(150);
/// The places that a contender reads in its turn, and the times of its reads.
pub struct Turn<'a> {
    pub file: &'a DemoFile,
    pub way: Way,
    /// The number of blocks, and the key of the order in which they are read.
    blocks: u64,
    key: u64,
    /// The number of reads that were begun.
    begun: u64,
    stop: &'a Stop,
    begin: Instant,
    reads: u64,
    latencies: Vec<u32>,
    blocked: Vec<u32>,
}

impl Turn<'_> {
    /// A turn. Those with the same seed read the same places.
    pub fn new<'a>(file: &'a DemoFile, way: Way, seed: u64, stop: &'a Stop) -> Turn<'a> {
        Turn {
            file,
            way,
            blocks: file.blocks(way),
            key: mix(seed),
            begun: 0,
            stop,
            begin: Instant::now(),
            reads: 0,
            latencies: Vec::new(),
            blocked: Vec::new(),
        }
    }

    /// Starts the clock. A contender calls it when it has its threads.
    pub fn begin(&mut self) {
        self.begin = Instant::now();
    }

    /// The offset of the next read, and its beginning if it is timed. `None` if the turn is over.
    pub fn next(&mut self) -> Option<(u64, Option<Instant>)> {
        let is_through = self.begun >= self.blocks;
        if self.way == Way::Cold && is_through || self.stop.asked() {
            return None;
        }
        let timed = self.begun.is_multiple_of(self.way.timed());
        let now = timed.then(Instant::now);
        if now.is_some_and(|now| now - self.begin > TIME) {
            return None;
        }
        let place = permute(self.begun % self.blocks, self.blocks, self.key);
        self.begun += 1;
        Some((place * BLOCK, now))
    }

    /// Takes the result of a read, and the time for which it has blocked the calling thread. `None`
    /// if that is the time of the whole read.
    pub fn done(
        &mut self,
        read: usize,
        begun: Option<Instant>,
        blocked: Option<Duration>,
    ) -> Result<(), Problem> {
        if read as u64 != BLOCK {
            let message = "the file has become shorter; name one that no other program changes";
            return Err(Problem::Failed(message.into()));
        }
        self.reads += 1;
        if let Some(begun) = begun {
            let latency = begun.elapsed();
            let nanos = |time: Duration| u32::try_from(time.as_nanos()).unwrap_or(u32::MAX);
            self.latencies.push(nanos(latency));
            self.blocked.push(nanos(blocked.unwrap_or(latency)));
        }
        Ok(())
    }

    /// The figures of the turn.
    pub fn end(mut self) -> Figures {
        Figures {
            reads_per_s: self.reads as f64 / self.begin.elapsed().as_secs_f64(),
            latency_p50_ns: percentile(&mut self.latencies, 50),
            latency_p99_ns: percentile(&mut self.latencies, 99),
            blocked_p99_ns: percentile(&mut self.blocked, 99),
        }
    }
}

/// The figures of one turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub reads_per_s: f64,
    pub latency_p50_ns: u32,
    pub latency_p99_ns: u32,
    pub blocked_p99_ns: u32,
}

fn percentile(samples: &mut [u32], percent: usize) -> u32 {
    if samples.is_empty() {
        return 0;
    }
    let index = (samples.len() - 1) * percent / 100;
    *samples.select_nth_unstable(index).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let mut samples: Vec<u32> = (1..=100).rev().collect();
        assert_eq!(percentile(&mut samples, 50), 50);
        assert_eq!(percentile(&mut samples, 99), 99);
        assert_eq!(percentile(&mut [7], 99), 7);
        assert_eq!(percentile(&mut [], 99), 0);
    }
}
