//! Ranges of bytes that do not touch, in order.
//!
//! ```
//! use nowait_residency::ranges::Ranges;
//! let ranges = Ranges::from_iter([0..4096, 8192..12288]);
//! assert!(ranges.gaps(0..12288).eq([4096..8192]));
//! assert!(ranges.within(&(1024..10240)).eq([1024..4096, 8192..10240]));
//! ```

use std::ops::Range;

/// The ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// All bytes of a file.
    pub fn all() -> Ranges {
        Ranges::from_iter(std::iter::once(0..u64::MAX))
    }

    /// Adds a range, which may be in others.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|it| it.end < range.start);
        let last = self.0.partition_point(|it| it.start <= range.end);
        let touched = &self.0[first..last];
        let start = touched
            .first()
            .map_or(range.start, |it| it.start.min(range.start));
        let end = touched.last().map_or(range.end, |it| it.end.max(range.end));
        self.0.splice(first..last, std::iter::once(start..end));
    }

    /// The parts of a range that are in none of these.
    pub fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|it| it.end <= range.start);
        let mut start = range.start;
        let within = self.0[first..]
            .iter()
            .take_while(move |it| it.start < range.end);
        let mut parts: Vec<Range<u64>> = Vec::new();
        for it in within {
            parts.push(start..it.start.max(start));
            start = it.end;
        }
        parts.push(start..range.end);
        parts.into_iter().filter(|it| it.start < it.end)
    }

    /// The parts of these ranges that lie within another range.
    pub fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|it| it.end <= range.start);
        let (start, end) = (range.start, range.end);
        let touched = self.0[first..].iter().take_while(move |it| it.start < end);
        touched.map(move |it| it.start.max(start)..it.end.min(end))
    }

    /// The ranges, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Range<u64>> {
        self.0.iter()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The offset after the last one.
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, |range| range.end)
    }

    /// The bytes of these ranges within a file of this size.
    pub fn bytes(&self, size: u64) -> u64 {
        let within = |range: &Range<u64>| range.end.min(size).saturating_sub(range.start);
        self.0.iter().map(within).sum()
    }
}

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Ranges {
        let mut all = Ranges::default();
        ranges.into_iter().for_each(|range| all.add(range));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut ranges = Ranges::default();
        for range in [8..9, 0..2, 4..6, 3..3, 6..7, 1..3, 20..u64::MAX, 8..10] {
            ranges.add(range);
        }
        assert_eq!(ranges.0, [0..3, 4..7, 8..10, 20..u64::MAX]);
        assert_eq!((ranges.bytes(25), ranges.end()), (3 + 3 + 2 + 5, u64::MAX));
        let gaps = |range| ranges.gaps(range).collect::<Vec<_>>();
        assert_eq!(gaps(0..30), [3..4, 7..8, 10..20]);
        assert_eq!((gaps(1..3).len(), gaps(5..5).len()), (0, 0));
        assert_eq!(gaps(2..9), [3..4, 7..8]);
        assert_eq!(gaps(12..13).first(), Some(&(12..13)));
        ranges.add(0..u64::MAX);
        assert_eq!(ranges, Ranges::all());
    }

    #[test]
    fn any_ranges_can_be_added() {
        let mut ranges = Ranges::default();
        for start in [0, 1, u64::MAX - 1, u64::MAX, 7] {
            for end in [0, u64::MAX, 5] {
                ranges.add(start..end);
                ranges.gaps(start..end).for_each(drop);
            }
        }
        assert!(ranges.iter().all(|range| range.start < range.end));
    }
}
