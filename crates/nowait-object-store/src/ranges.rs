//! Ranges that are read together.

use std::ops::Range;

use bytes::Bytes;

/// The most bytes between two ranges that are read with them: a page. Reading them takes less time
/// than another system call.
const GAP: u64 = 4096;

/// The ranges to read for `ranges`, in order and not empty.
pub(crate) fn join(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges.iter().filter(|range| !range.is_empty()).collect();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP) => {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range.clone()),
        }
    }
    joined
}

/// The bytes of each range, as parts of the bytes that were read for the joined ones.
pub(crate) fn split(ranges: &[Range<u64>], joined: &[Range<u64>], parts: &[Bytes]) -> Vec<Bytes> {
    let of = |range: &Range<u64>| {
        if range.is_empty() {
            return Bytes::new();
        }
        let part = joined.partition_point(|joined| joined.start <= range.start) - 1;
        let at = |offset: u64| usize::try_from(offset - joined[part].start).unwrap_or(usize::MAX);
        parts[part].slice(at(range.start)..at(range.end))
    };
    ranges.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_joined_over_a_page_and_not_over_more() {
        let near = join(&[0..10, 10 + GAP..20 + GAP]);
        assert_eq!(near, vec![0..20 + GAP; 1]);
        assert_eq!(
            join(&[0..10, 11 + GAP..20 + GAP]),
            [0..10, 11 + GAP..20 + GAP]
        );
        let overlapping = join(&[9_000..9_001, 5..5, 0..9_000, 3..4]);
        assert_eq!(overlapping, vec![0..9_001; 1]);
        assert_eq!(join(&[7..7, 9..9]), []);
    }

    proptest! {
        #[test]
        fn each_range_gets_its_own_bytes(
            ranges in prop::collection::vec((0u64..60_000, 0u64..9_000), 0..20),
        ) {
            let file: Vec<u8> = (0..70_000u32).map(|i| (i % 251) as u8).collect();
            let bytes = |range: &Range<u64>| &file[range.start as usize..range.end as usize];
            let ranges: Vec<_> = ranges.iter().map(|(start, len)| *start..start + len).collect();
            let joined = join(&ranges);
            let parts: Vec<_> = joined.iter().map(|range| Bytes::copy_from_slice(bytes(range))).collect();
            let read = split(&ranges, &joined, &parts);
            prop_assert_eq!(read.len(), ranges.len());
            for (range, read) in ranges.iter().zip(read) {
                prop_assert_eq!(&read[..], bytes(range));
            }
        }
    }
}
