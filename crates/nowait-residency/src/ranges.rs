//! A set of bytes of a file, as ranges.
//!
//! ```
//! use nowait_residency::ranges::Ranges;
//! let ranges = Ranges::from_iter([0..4096, 8192..12288]);
//! assert!(ranges.gaps(0..12288).eq([4096..8192]));
//! assert!(ranges.within(1024..10240).eq([1024..4096, 8192..10240]));
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of bytes. Its ranges are in order; none is empty, and no two of them touch.
///
/// There is a set for each of many files, and most have one range. It needs no memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// One range, or an empty one for none.
    One(Range<u64>),
    /// The end of each range, by its start. There are several.
    Many(BTreeMap<u64, u64>),
}

impl Default for Ranges {
    fn default() -> Ranges {
        Ranges::One(0..0)
    }
}

impl Ranges {
    /// All bytes of any file.
    pub fn all() -> Ranges {
        Ranges::One(0..u64::MAX)
    }

    /// Adds the bytes of a range.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        let ends = match self {
            Ranges::One(one) if one.is_empty() => {
                *one = range;
                return;
            }
            Ranges::One(one) if one.start <= end && start <= one.end => {
                *one = one.start.min(start)..one.end.max(end);
                return;
            }
            Ranges::One(one) => {
                let two = [(one.start, one.end), (start, end)];
                *self = Ranges::Many(BTreeMap::from(two));
                return;
            }
            Ranges::Many(ends) => ends,
        };
        while let Some((&at, &to)) = ends.range(..=end).next_back()
            && to >= start
        {
            ends.remove(&at);
            (start, end) = (start.min(at), end.max(to));
        }
        ends.insert(start, end);
        self.shrink();
    }

    /// Removes the bytes of a range.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let ends = match self {
            Ranges::One(one) => {
                let left = one.start..one.end.min(range.start);
                let right = one.start.max(range.end)..one.end;
                *self = Ranges::default();
                self.add(left);
                self.add(right);
                return;
            }
            Ranges::Many(ends) => ends,
        };
        while let Some((&at, &to)) = ends.range(..range.end).next_back()
            && to > range.start
        {
            ends.remove(&at);
            if at < range.start {
                ends.insert(at, range.start);
            }
            if to > range.end {
                ends.insert(range.end, to);
            }
        }
        self.shrink();
    }

    /// Several ranges have become one, or none.
    fn shrink(&mut self) {
        if let Ranges::Many(ends) = self
            && ends.len() <= 1
        {
            *self = Ranges::One(ends.first_key_value().map_or(0..0, |(&s, &e)| s..e));
        }
    }

    /// The first range of bytes at or after `from`.
    pub fn first_from(&self, from: u64) -> Option<Range<u64>> {
        let found = match self {
            Ranges::One(one) => one.start..one.end,
            Ranges::Many(ends) => {
                let before = ends.range(..=from).next_back();
                let found = before.filter(|&(_, &end)| end > from);
                let (&start, &end) = found.or_else(|| ends.range(from..).next())?;
                start..end
            }
        };
        (found.end > from && !found.is_empty()).then_some(found.start.max(from)..found.end)
    }

    /// Returns true if the set has all bytes of a range.
    pub fn has(&self, range: Range<u64>) -> bool {
        let found = self.first_from(range.start);
        range.is_empty() || found.is_some_and(|f| f.start == range.start && f.end >= range.end)
    }

    /// Returns true if the set has this byte.
    pub fn contains(&self, byte: u64) -> bool {
        self.first_from(byte).is_some_and(|it| it.start == byte)
    }

    /// The offset after the last byte. 0 if there is none.
    pub fn end(&self) -> u64 {
        match self {
            Ranges::One(one) => one.end,
            Ranges::Many(ends) => ends.last_key_value().map_or(0, |(_, &end)| end),
        }
    }

    /// The parts of a range that the set has, in order.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut from = range.start;
        std::iter::from_fn(move || {
            let found = self.first_from(from).filter(|it| it.start < range.end)?;
            from = found.end;
            Some(found.start..found.end.min(range.end))
        })
    }

    /// The parts of a range that the set does not have, in order.
    pub fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut from = range.start;
        std::iter::from_fn(move || {
            while from < range.end {
                let start = from;
                let next = self.first_from(from).filter(|it| it.start < range.end);
                let gap = start..next.as_ref().map_or(range.end, |it| it.start);
                from = next.map_or(range.end, |it| it.end);
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }

    /// Returns true if the set has no bytes.
    pub fn is_empty(&self) -> bool {
        matches!(self, Ranges::One(one) if one.is_empty())
    }

    /// The number of ranges.
    pub fn len(&self) -> usize {
        match self {
            Ranges::One(one) => usize::from(!one.is_empty()),
            Ranges::Many(ends) => ends.len(),
        }
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let (one, many) = match self {
            Ranges::One(one) => (Some(one.clone()), None),
            Ranges::Many(ends) => (None, Some(ends)),
        };
        let many = many.into_iter().flatten();
        let one = one.into_iter().filter(|one| !one.is_empty());
        one.chain(many.map(|(&start, &end)| start..end))
    }

    /// The bytes that are in both sets.
    pub fn both(&self, other: &Ranges) -> Ranges {
        let parts = self.iter().flat_map(|range| other.within(range));
        parts.collect()
    }

    /// The bytes that are not in `other`.
    pub fn without(&self, other: &Ranges) -> Ranges {
        let mut left = self.clone();
        for range in other.iter() {
            left.remove(range);
        }
        left
    }
}

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Ranges {
        let mut set = Ranges::default();
        for range in ranges {
            set.add(range);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ranges within 40 bytes, in any order, which may overlap and be empty.
    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec((0..40u64, 0..9u64), 0..12)
            .prop_map(|all| all.into_iter().map(|(at, len)| at..at + len).collect())
    }

    fn is_sound(set: &Ranges) -> bool {
        let ranges: Vec<_> = set.iter().collect();
        let apart = ranges.windows(2).all(|two| two[0].end < two[1].start);
        let is_many = matches!(set, Ranges::Many(_));
        apart && ranges.iter().all(|range| !range.is_empty()) && is_many == (ranges.len() > 1)
    }

    proptest! {
        #[test]
        fn every_byte_is_in_the_right_set(a in ranges(), b in ranges()) {
            let has = |list: &[Range<u64>], byte| list.iter().any(|range| range.contains(&byte));
            let (x, y): (Ranges, Ranges) = (a.iter().cloned().collect(), b.iter().cloned().collect());
            let (both, left) = (x.both(&y), x.without(&y));
            for set in [&x, &y, &both, &left] {
                prop_assert!(is_sound(set), "{set:?}");
            }
            for byte in 0..50 {
                prop_assert_eq!(x.contains(byte), has(&a, byte), "{}", byte);
                prop_assert_eq!(both.contains(byte), has(&a, byte) && has(&b, byte), "{}", byte);
                prop_assert_eq!(left.contains(byte), has(&a, byte) && !has(&b, byte), "{}", byte);
                let next = x.first_from(byte).map(|range| range.start);
                prop_assert_eq!(next, (byte..50).find(|&at| has(&a, at)), "{}", byte);
            }
            let mut y_and_x = y.clone();
            x.iter().for_each(|range| y_and_x.add(range));
            prop_assert!(is_sound(&y_and_x), "{y_and_x:?}");
            for range in &b {
                let all = range.clone().all(|byte| has(&a, byte));
                prop_assert_eq!(x.has(range.clone()), all, "{:?}", range);
            }
            for range in &b {
                let (gaps, within) = (x.gaps(range.clone()), x.within(range.clone()));
                let (gaps, within): (Ranges, Ranges) = (gaps.collect(), within.collect());
                for byte in 0..50 {
                    let inside = range.contains(&byte);
                    prop_assert_eq!(gaps.contains(byte), inside && !has(&a, byte), "{}", byte);
                    prop_assert_eq!(within.contains(byte), inside && has(&a, byte), "{}", byte);
                }
            }
            prop_assert_eq!(x.end(), (0..50).rev().find(|&it| has(&a, it)).map_or(0, |it| it + 1));
            prop_assert_eq!(x.len(), x.iter().count());
            prop_assert_eq!(x.bytes(), (0..50).filter(|&byte| has(&a, byte)).count() as u64);
        }
    }

    #[test]
    fn any_ranges_can_be_added() {
        let mut ranges = Ranges::default();
        for start in [0, 1, u64::MAX - 1, u64::MAX, 7] {
            for end in [0, u64::MAX, 5] {
                ranges.add(start..end);
                ranges.gaps(start..end).for_each(drop);
                ranges.within(start..end).for_each(drop);
            }
        }
        assert_eq!(ranges, Ranges::all());
    }
}
