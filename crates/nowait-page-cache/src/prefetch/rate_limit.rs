//! A rate limit in bytes per second. A piece may start when the time for the previous pieces has
//! passed.

use std::time::{Duration, Instant};

/// The rate limit, and the time at which the started pieces are within it.
#[derive(Debug)]
pub struct RateLimit {
    rate: Option<u64>,
    /// The time at which the next piece is within the rate.
    free_at: Instant,
}

/// The intended number of pieces per second. It keeps the reads even.
const PIECES: u64 = 8;

/// A piece may start this long before its time. Wake-ups are a little late, and if the rate exceeds
/// the device's, several reads must be in flight.
const AHEAD: Duration = Duration::from_millis(10);

impl RateLimit {
    /// A limit of `rate` bytes per second, or no limit.
    pub fn new(rate: Option<u64>) -> RateLimit {
        RateLimit {
            rate,
            free_at: Instant::now(),
        }
    }

    /// The time until the next piece may start.
    pub fn wait(&self) -> Duration {
        let ahead = Instant::now() + AHEAD;
        self.free_at.saturating_duration_since(ahead)
    }

    /// The largest piece for this rate: whole pages, at most `max` bytes.
    pub fn piece(&self, max: u64, page: u64) -> u64 {
        self.rate.map_or(max, |rate| {
            let even = rate / PIECES;
            (even - even % page).clamp(page, max)
        })
    }

    /// Counts a piece of this size that starts now.
    pub fn started(&mut self, bytes: u64) {
        if let Some(rate) = self.rate {
            let cost = Duration::try_from_secs_f64(bytes as f64 / rate as f64);
            let now = self.free_at.max(Instant::now());
            // A time beyond the range of the clock becomes NEVER.
            self.free_at = now
                .checked_add(cost.unwrap_or(NEVER))
                .unwrap_or(now + NEVER);
        }
    }
}

/// Longer than any program runs.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_waits_for_the_time_of_the_previous_piece() {
        let mut rate_limit = RateLimit::new(Some(1));
        assert_eq!(rate_limit.wait(), Duration::ZERO);
        assert_eq!(rate_limit.piece(256 << 10, 4096), 4096);
        rate_limit.started(4096);
        assert!(rate_limit.wait() > Duration::from_secs(4000));
        rate_limit.started(u64::MAX);
        assert!(rate_limit.wait() > Duration::from_secs(5000));
    }

    #[test]
    fn a_high_rate_allows_several_pieces_at_once() {
        let mut rate_limit = RateLimit::new(Some(100 << 30));
        for _ in 0..64 {
            rate_limit.started(256 << 10);
            assert_eq!(rate_limit.wait(), Duration::ZERO);
        }
    }

    #[test]
    fn without_a_limit_no_piece_waits() {
        let mut rate_limit = RateLimit::new(None);
        rate_limit.started(u64::MAX);
        assert_eq!(rate_limit.wait(), Duration::ZERO);
        assert_eq!(rate_limit.piece(256 << 10, 4096), 256 << 10);
    }
}
