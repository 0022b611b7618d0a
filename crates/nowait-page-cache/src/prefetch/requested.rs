//! The set of ranges that were already requested. A snapshot may list a file twice, or under
//! several names. A range that is listed twice is read once, and counted once in the summary and
//! the budget.

use std::collections::HashMap;
use std::ops::Range;

use rustix::fs::Stat;

/// Ranges of files, by device and inode.
#[derive(Debug, Default)]
pub struct Requested(HashMap<(u64, u64), Ranges>);

#[derive(Debug, Default)]
struct Ranges {
    several_names: bool,
    /// The ranges in order. No two of them overlap or touch.
    ranges: Vec<Range<u64>>,
}

impl Requested {
    /// Adds `ranges`, which must be in order. Returns the parts of them that were not in the set
    /// before.
    pub fn insert(&mut self, file: &Stat, ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
        let known = self.0.entry((file.st_dev, file.st_ino)).or_default();
        known.several_names = file.st_nlink > 1;
        let fresh = without(&ranges, &known.ranges);
        known.ranges = union(std::mem::take(&mut known.ranges), ranges);
        fresh
    }

    /// Removes files with one name. A snapshot lists them once, so they are not needed again.
    /// Memory does not grow with the number of such files.
    pub fn forget_single_names(&mut self) {
        self.0.retain(|_, known| known.several_names);
    }
}

/// The parts of `ranges` that are not in `others`. Both are in order.
fn without(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::with_capacity(ranges.len());
    let mut others = others.iter().peekable();
    for range in ranges {
        let mut start = range.start;
        while others.next_if(|other| other.end <= start).is_some() {}
        while let Some(other) = others.peek().filter(|other| other.start < range.end) {
            if start < other.start {
                left.push(start..other.start);
            }
            start = start.max(other.end);
            if other.end > range.end {
                break;
            }
            others.next();
        }
        if start < range.end {
            left.push(start..range.end);
        }
    }
    left
}

/// The union of two lists of ranges.
fn union(mut ranges: Vec<Range<u64>>, others: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.extend(others);
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, kept| {
        let touches = next.start <= kept.end;
        if touches {
            kept.end = kept.end.max(next.end);
        }
        touches
    });
    ranges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ordered ranges within 40 bytes, as a snapshot may have them.
    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec(0..40u64, 0..12).prop_map(|mut bounds| {
            bounds.sort_unstable();
            let pairs = bounds.chunks_exact(2).map(|pair| pair[0]..pair[1]);
            pairs.filter(|range| !range.is_empty()).collect()
        })
    }

    fn has(ranges: &[Range<u64>], byte: u64) -> bool {
        ranges.iter().any(|range| range.contains(&byte))
    }

    fn in_order(ranges: &[Range<u64>]) -> bool {
        let behind = ranges.windows(2).all(|two| two[0].end <= two[1].start);
        behind && ranges.iter().all(|range| !range.is_empty())
    }

    proptest! {
        #[test]
        fn every_byte_is_in_the_right_set(a in ranges(), b in ranges()) {
            // The remembered ranges are always a union.
            let b = union(Vec::new(), b);
            let (left, both) = (without(&a, &b), union(b.clone(), a.clone()));
            prop_assert!(in_order(&left) && in_order(&both), "{left:?} {both:?}");
            for byte in 0..40 {
                prop_assert_eq!(has(&left, byte), has(&a, byte) && !has(&b, byte), "{}", byte);
                prop_assert_eq!(has(&both, byte), has(&a, byte) || has(&b, byte), "{}", byte);
            }
        }
    }
}
