//! The share of events, and the range in which the true share lies.
//!
//! The range is Wilson's, for 95 %. If the event did not happen in `n`, the range ends at 3/n (the
//! rule of three). Both assume independent events. The kernel reclaims pages in groups, so races
//! are not independent: if rounds differ more than independent events would, the number of events
//! is divided by Kish's design effect, with rounds as clusters.

use serde::Serialize;

/// The number of trials, and of those in which the event happened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    pub of: u64,
    pub happened: u64,
}

/// A share and its range, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    pub share: f64,
    pub low95: f64,
    pub high95: f64,
}

/// The 97.5 % point of the normal distribution.
const Z: f64 = 1.96;

impl Share {
    /// The share over all rounds; `None` if there were no trials.
    pub fn of(rounds: &[Count]) -> Option<Share> {
        let n: u64 = rounds.iter().map(|c| c.of).sum();
        let happened: u64 = rounds.iter().map(|c| c.happened).sum();
        if n == 0 {
            return None;
        }
        let share = happened as f64 / n as f64;
        let (low95, high95) = match happened {
            0 => (0.0, (3.0 / n as f64).min(1.0)),
            _ => wilson(share, n as f64 / design_effect(rounds, share)),
        };
        Some(Share {
            share,
            low95,
            high95,
        })
    }
}

fn wilson(p: f64, n: f64) -> (f64, f64) {
    let square = Z * Z;
    let middle = p + square / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + square / (4.0 * n * n)).sqrt();
    let scale = 1.0 + square / n;
    (
        ((middle - half) / scale).max(0.0),
        ((middle + half) / scale).min(1.0),
    )
}

/// The variance between rounds divided by that of independent events; at least 1.
fn design_effect(rounds: &[Count], share: f64) -> f64 {
    let by_chance = share * (1.0 - share);
    let asked = rounds.iter().filter(|c| c.of > 0);
    let (mut sum, mut clusters) = (0.0, 0.0);
    for count in asked {
        let n = count.of as f64;
        sum += (count.happened as f64 - n * share).powi(2) / (n * by_chance);
        clusters += 1.0;
    }
    if clusters < 2.0 || by_chance == 0.0 {
        return 1.0;
    }
    (sum / (clusters - 1.0)).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(of: u64, happened: u64) -> Count {
        Count { of, happened }
    }

    #[test]
    fn the_range_is_that_of_wilson() {
        // 81 of 263 (Newcombe 1998, table I, method 3: 0.2553 to 0.3662).
        let share = Share::of(&[count(263, 81)]).unwrap();
        assert!((share.low95 - 0.2553).abs() < 1e-4 && (share.high95 - 0.3662).abs() < 1e-4);
    }

    #[test]
    fn what_never_happened_may_have_been_missed() {
        let share = Share::of(&[count(1000, 0), count(2000, 0)]).unwrap();
        assert_eq!((share.share, share.low95, share.high95), (0.0, 0.0, 0.001));
        assert_eq!(Share::of(&[]), None);
        assert_eq!(Share::of(&[count(0, 0)]), None);
        let all = Share::of(&[count(9, 9), count(9, 9)]).unwrap();
        assert!(all.low95 > 0.8 && all.high95 == 1.0);
    }

    #[test]
    fn rounds_that_differ_widen_it() {
        let same = Share::of(&[count(1000, 50), count(1000, 50)]).unwrap();
        let burst = Share::of(&[count(1000, 100), count(1000, 0)]).unwrap();
        assert_eq!(same.share, burst.share);
        assert!(burst.high95 - burst.low95 > 3.0 * (same.high95 - same.low95));
        // One round alone has no variance between rounds.
        assert_eq!(Share::of(&[count(2000, 100)]), Some(same));
    }
}
