//! How two ways compare: the median of the ratios within each round, and the range in which the true
//! median lies.
//!
//! Within a round both have the same places and a machine in the same mood, so each round gives one
//! ratio. The range is the order-statistic interval of the sign test: of `n` sorted ratios it leaves
//! out `k` at each end, as many as keep its coverage at 95 % or more. It assumes nothing about how
//! ratios are distributed; below 6 rounds even the whole range covers less.

use std::fmt;

/// A median and its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub median: f64,
    pub low95: f64,
    pub high95: f64,
}

impl Interval {
    /// Of A's figures in B's, pair by pair; `None` of none.
    pub fn of(a: &[f64], b: &[f64]) -> Option<Interval> {
        let mut ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b.max(1e-9)).collect();
        if ratios.is_empty() {
            return None;
        }
        let median = middle(&mut ratios);
        let k = left_out(ratios.len());
        Some(Interval {
            median,
            low95: ratios[k],
            high95: ratios[ratios.len() - 1 - k],
        })
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interval {
            median,
            low95,
            high95,
        } = self;
        write!(f, "{median:.3} ({low95:.3}-{high95:.3})")
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

/// How many ratios at each end may be left out.
fn left_out(n: usize) -> usize {
    let covers = |k: &usize| coverage(n, *k) >= 0.95;
    (1..n / 2).take_while(covers).last().unwrap_or(0)
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
            (5, 0, 0.9375),
            (9, 1, 0.9609),
            (12, 2, 0.9614),
            (20, 5, 0.9586),
        ] {
            assert_eq!(left_out(n), k, "{n}");
            assert!((coverage(n, k) - covers).abs() < 1e-3, "{n}");
        }
    }

    #[test]
    fn rounds_are_paired() {
        // The machine gets slower and slower; within a round A is twice as fast.
        let ratio = Interval::of(&[2.0, 20.0, 200.0], &[1.0, 10.0, 100.0]).unwrap();
        assert_eq!((ratio.low95, ratio.median, ratio.high95), (2.0, 2.0, 2.0));
        assert_eq!(Interval::of(&[], &[]), None);
    }
}
