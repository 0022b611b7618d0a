//! The median of some figures, and the range in which the true one lies.
//!
//! The range is the order-statistic interval of the sign test: of `n` sorted figures it leaves out `k`
//! at each end, as many as keep its coverage at 95 % or more. It assumes nothing about how the figures
//! are distributed; below 6 of them even the whole range covers less.

use serde::{Deserialize, Serialize};

/// A median and its range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub median: f64,
    pub low95: f64,
    pub high95: f64,
}

impl Interval {
    /// Of some figures, which it sorts; of none, all are 0.
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

    /// With which probability such a range of so many figures holds the true median.
    pub fn coverage(n: usize) -> f64 {
        coverage(n, left_out(n))
    }
}

/// The median of some numbers, which it sorts; 0 of none.
pub fn middle(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => 0.0,
        n if n % 2 == 1 => figures[n / 2],
        n => (figures[n / 2 - 1] + figures[n / 2]) / 2.0,
    }
}

/// How many figures at each end may be left out.
fn left_out(n: usize) -> usize {
    (1..n / 2)
        .take_while(|&k| coverage(n, k) >= 0.95)
        .last()
        .unwrap_or(0)
}

/// With which probability the true median lies within `n` sorted values but the `k` at each end:
/// 1 − 2·P(at most `k` of `n` coins show heads).
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
