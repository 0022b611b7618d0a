//! How two contenders compare: the median of the ratios within each round, and the range in which
//! the true median lies.
//!
//! Within a round both have the same places to read and a machine in the same mood, so each round
//! gives one ratio. Below 6 rounds even their whole range covers less than 95 % (3 rounds: 75 %), and
//! `coverage` says so.

use std::collections::BTreeMap;

use serde::Serialize;

use super::draws::CLASSES;
use super::round::{Percentiles, Round};
use super::sign_test::Interval;

/// Fewer rounds than this make no ratio.
pub const FEWEST: usize = 3;

/// Why there are no ratios, for people.
pub fn none(has_rivals: bool) -> String {
    match has_rivals {
        true => format!("No ratios: they need {FEWEST} rounds."),
        false => "No ratios: there is nobody to compare with.".into(),
    }
}

/// Operations per second of A, in those of B; and processor time per operation likewise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    #[serde(flatten)]
    pub ops: Interval,
    pub cpu: Interval,
    /// Of the classes of a mix.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<&'static str, ClassRatio>,
    pub rounds: usize,
    /// The probability with which such a range holds the true median.
    pub coverage: f64,
}

/// How one class of two contenders compares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassRatio {
    /// Of reads per second.
    #[serde(flatten)]
    pub ops: Interval,
    /// Of latencies.
    pub p50: Interval,
    pub p99: Interval,
}

impl Ratio {
    /// Of A's rounds to B's, pair by pair; `None` of too few.
    pub fn of(a: &[Round], b: &[Round]) -> Option<Ratio> {
        let rounds = a.len().min(b.len());
        if rounds < FEWEST {
            return None;
        }
        let of = |figure: &dyn Fn(&Round) -> f64| {
            let mut each: Vec<f64> = a
                .iter()
                .zip(b)
                .map(|(a, b)| figure(a) / figure(b).max(1e-12))
                .collect();
            Interval::of(&mut each)
        };
        let class = |name: &'static str| {
            let lat = |r: &Round, p: fn(&Percentiles) -> f64| {
                r.classes[name].lat_us.as_ref().map_or(0.0, p)
            };
            ClassRatio {
                ops: of(&|r| r.classes[name].ops_per_s),
                p50: of(&|r| lat(r, |p| p.p50)),
                p99: of(&|r| lat(r, |p| p.p99)),
            }
        };
        // A class that was drawn by neither has none.
        let drawn = |name: &&&'static str| {
            let mut all = a.iter().chain(b);
            all.all(|r| r.classes.get(**name).is_some_and(|class| class.ops > 0))
        };
        Some(Ratio {
            ops: of(&|r| r.ops_per_s),
            cpu: of(&|r| r.cpu_us_per_op),
            classes: CLASSES
                .iter()
                .filter(drawn)
                .map(|name| (*name, class(name)))
                .collect(),
            rounds,
            coverage: Interval::coverage(rounds),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::usage::Usage;

    #[test]
    fn rounds_are_paired() {
        let rounds = |seconds: &[f64]| -> Vec<Round> {
            let used = Usage {
                user: 1.0,
                ..Usage::default()
            };
            seconds
                .iter()
                .map(|&s| Round::new(100, 4096, s, used))
                .collect()
        };
        // The machine gets slower and slower; within a round A is twice as fast.
        let (a, b) = (rounds(&[1.0, 10.0, 100.0]), rounds(&[2.0, 20.0, 200.0]));
        let ratio = Ratio::of(&a, &b).unwrap();
        assert!((ratio.ops.median - 2.0).abs() < 1e-9 && (ratio.ops.low95 - 2.0).abs() < 1e-9);
        assert!((ratio.cpu.median - 1.0).abs() < 1e-9);
        assert_eq!(Ratio::of(&a[..2], &b), None);
    }
}
