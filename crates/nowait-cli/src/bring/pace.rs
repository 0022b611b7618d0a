//! A limit of bytes a second: a piece may go when what went before is paid for.

use std::time::{Duration, Instant};

/// The limit, and what is owed.
#[derive(Debug)]
pub struct Pace {
    rate: Option<u64>,
    /// When the last piece will be paid for.
    free_at: Instant,
}

/// So many pieces a second are aimed at, so that what is read comes evenly.
const PIECES: u64 = 8;

/// A piece goes so long before the ones before it are paid for: who is woken comes a little late, and
/// of a rate beyond the device's nothing would be under way otherwise.
const AHEAD: Duration = Duration::from_millis(10);

impl Pace {
    /// So many bytes a second, or as many as come.
    pub fn new(rate: Option<u64>) -> Pace {
        Pace {
            rate,
            free_at: Instant::now(),
        }
    }

    /// How long the next piece has to wait.
    pub fn wait(&self) -> Duration {
        let ahead = Instant::now() + AHEAD;
        self.free_at.saturating_duration_since(ahead)
    }

    /// The largest piece that keeps the pace: whole pages, at most `most` bytes.
    pub fn piece(&self, most: u64, page: u64) -> u64 {
        self.rate.map_or(most, |rate| {
            let even = rate / PIECES;
            (even - even % page).clamp(page, most)
        })
    }

    /// A piece of so many bytes goes now.
    pub fn goes(&mut self, bytes: u64) {
        if let Some(rate) = self.rate {
            let cost = Duration::try_from_secs_f64(bytes as f64 / rate as f64);
            let now = self.free_at.max(Instant::now());
            // A cost beyond what a clock can say is "never".
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
    fn a_piece_waits_until_the_one_before_is_paid_for() {
        let mut pace = Pace::new(Some(1));
        assert_eq!(pace.wait(), Duration::ZERO);
        assert_eq!(pace.piece(256 << 10, 4096), 4096);
        pace.goes(4096);
        assert!(pace.wait() > Duration::from_secs(4000));
        pace.goes(u64::MAX);
        assert!(pace.wait() > Duration::from_secs(5000));
    }

    #[test]
    fn of_a_high_rate_several_pieces_are_under_way() {
        let mut pace = Pace::new(Some(100 << 30));
        for _ in 0..64 {
            pace.goes(256 << 10);
            assert_eq!(pace.wait(), Duration::ZERO);
        }
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut pace = Pace::new(None);
        pace.goes(u64::MAX);
        assert_eq!(pace.wait(), Duration::ZERO);
        assert_eq!(pace.piece(256 << 10, 4096), 256 << 10);
    }
}
