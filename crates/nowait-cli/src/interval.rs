//! The median of some figures, and the range in which the true median lies.
//!
//! The range is the order-statistic interval of the sign test: of `n` sorted figures it leaves out
//! `k` at each end, as many as keep its coverage at 95 % or more. It makes no assumption on the
//! distribution of the figures. With fewer than 6 figures even the whole range covers less than 95
//! %.

use serde::{Deserialize, Serialize};

/// A median and its range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median.
    pub median: f64,
    /// The lower end.
    pub low95: f64,
    /// The upper end.
    pub high95: f64,
}

/// A ratio whose whole range is on one side of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The first is better.
    Better,
    /// The first is worse.
    Worse,
}

impl Interval {
    /// The interval of some figures, which are sorted; all 0 without figures.
    pub fn of(figures: &mut [f64]) -> Interval {
        let median = middle(figures);
        let k = left_out(figures.len());
        let at = |i: usize| figures.get(i).copied().unwrap_or(0.0);
        Interval {
            median,
            low95: at(k),
            high95: at(figures.len().saturating_sub(1 + k)),
        }
    }

    /// The verdict on a ratio; `None` if 1 is within its range.
    pub fn verdict(self, more_is_better: bool) -> Option<Verdict> {
        match (self.low95 > 1.0, self.high95 < 1.0) {
            (true, _) if more_is_better => Some(Verdict::Better),
            (true, _) => Some(Verdict::Worse),
            (_, true) if more_is_better => Some(Verdict::Worse),
            (_, true) => Some(Verdict::Better),
            _ => None,
        }
    }

    /// The probability that the range of `n` figures holds the true median.
    pub fn coverage(n: usize) -> f64 {
        coverage(n, left_out(n))
    }
}

/// The median of some figures, which are sorted; 0 without figures.
pub fn middle(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => 0.0,
        n if n % 2 == 1 => figures[n / 2],
        n => (figures[n / 2 - 1] + figures[n / 2]) / 2.0,
    }
}

/// The number of figures at each end that are left out.
fn left_out(n: usize) -> usize {
    (1..n / 2)
        .take_while(|&k| coverage(n, k) >= 0.95)
        .last()
        .unwrap_or(0)
}

/// The probability that the true median lies within `n` sorted values without `k` at each end: 1 −
/// 2·P(at most `k` of `n` coins show heads).
fn coverage(n: usize, k: usize) -> f64 {
    let mut term = 0.5f64.powi(n as i32);
    let mut tail = 0.0;
    for i in 0..=k {
        tail += term;
        term *= (n - i) as f64 / (i + 1) as f64;
    }
    1.0 - 2.0 * tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_sign_test() {
        // n, left out at each end, coverage (Conover, Practical Nonparametric Statistics, A3).
        for (n, k, covers) in [
            (3, 0, 0.75),
            (5, 0, 0.9375),
            (6, 0, 0.96875),
            (9, 1, 0.9609),
            (12, 2, 0.9614),
            (20, 5, 0.9586),
        ] {
            assert_eq!(left_out(n), k, "{n}");
            assert!((coverage(n, k) - covers).abs() < 1e-3, "{n}");
        }
    }
}
