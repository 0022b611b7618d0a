//! How two contenders compare: the median of the ratios within each round, and the range in which the
//! true median lies.
//!
//! Within a round both have the same places and a machine in the same mood, so each round gives one
//! ratio.

use crate::harness::interval::Interval;

/// Of A's figures in B's, pair by pair; `None` of none.
pub fn ratio(a: &[f64], b: &[f64]) -> Option<Interval> {
    let mut ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b.max(1e-9)).collect();
    (!ratios.is_empty()).then(|| Interval::of(&mut ratios))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_paired() {
        // The machine gets slower and slower; within a round A is twice as fast.
        let ratio = ratio(&[2.0, 20.0, 200.0], &[1.0, 10.0, 100.0]).unwrap();
        assert_eq!((ratio.low95, ratio.median, ratio.high95), (2.0, 2.0, 2.0));
        assert_eq!(super::ratio(&[], &[]), None);
    }
}
