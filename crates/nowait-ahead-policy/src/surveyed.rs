//! The results of surveys of the pages of a file.

use std::ops::Range;

use nowait_ahead_channel::{Event, Missing};
use nowait_residency::page_size;

use nowait_residency::ranges::Ranges;

/// The surveyed parts of a file. The first survey of a part counts: later ones may have found pages that the program
/// has read. A part with too many ranges is not added: it counts as not surveyed, and its pages stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surveyed {
    /// The parts.
    parts: Ranges,
    /// The pages of these that were not resident. They are evicted; all others stay.
    pub missing: Ranges,
}

/// The least [`share`]: the ranges of a [`Surveyed::opened`].
const FEW: usize = 34;

/// The number of ranges that each of some files may have. The share becomes smaller with more files, but not smaller than [`FEW`]. Those
/// that were surveyed earlier may have more: all have at most `MAX * (1 + ln(files))`, and [`FEW`] each.
pub fn share(files: usize) -> usize {
    const MAX: usize = 1 << 18;
    (MAX / files.max(1)).max(FEW)
}

impl Surveyed {
    /// A survey of the whole file, which has found that these ranges are not resident.
    pub fn whole(missing: Ranges) -> Surveyed {
        let parts = Ranges::all();
        Surveyed { parts, missing }
    }

    /// The survey of a file that was just opened. Parts of it may follow.
    pub fn opened(event: &Event) -> Surveyed {
        let mut surveyed = Surveyed::default();
        surveyed.add_opened(event, FEW);
        surveyed
    }

    /// Adds the survey of a file that was opened once more, and that may have `max` ranges.
    pub fn add_opened(&mut self, event: &Event, max: usize) {
        const FIRST: u64 = 63;
        if event.pages == 0 {
            return;
        }
        let (start, end, first) = (0, FIRST * page_size(), event.pages & !(1 << FIRST));
        let pages = &first.to_le_bytes();
        self.add(Missing { start, end, pages }, max);
        if event.pages >> FIRST != 0 {
            let (start, end, pages) = (end, u64::MAX, &[][..]);
            self.add(Missing { start, end, pages }, max);
        }
        self.parts = Ranges::all();
    }

    /// Adds a part to a file that may have `max` ranges.
    pub fn add(&mut self, part: Missing<'_>, max: usize) {
        let missing: Ranges = ranges(part).collect();
        // A large file that is read in order makes no more ranges, but for one behind a part that had no room.
        let is_one = missing.len() <= 1;
        let is_longer = is_one
            && touches(&self.parts, &(part.start..part.end))
            && missing.iter().all(|it| touches(&self.missing, &it));
        let max = if is_one { max.saturating_mul(2) } else { max };
        if !is_longer && !self.has_room(missing.len(), max) {
            return;
        }
        for range in missing.iter() {
            for new in self.parts.gaps(range) {
                self.missing.add(new);
            }
        }
        self.parts.add(part.start..part.end);
    }

    /// Adds another survey of the file. Its missing pages are added also in parts that were surveyed before.
    pub fn unite(&mut self, other: Surveyed, max: usize) {
        if !self.has_room(other.ranges(), max) {
            return;
        }
        for (own, more) in [
            (&mut self.parts, other.parts),
            (&mut self.missing, other.missing),
        ] {
            more.iter().for_each(|range| own.add(range));
        }
    }

    fn ranges(&self) -> usize {
        self.parts.len() + self.missing.len()
    }

    fn has_room(&self, more: usize, max: usize) -> bool {
        self.ranges() + more <= max
    }

    /// The parts of a file of this size that were not surveyed.
    pub fn unknown(&self, size: u64) -> impl Iterator<Item = Range<u64>> {
        self.parts.gaps(0..size)
    }

    /// The bytes of a file of this size that were resident when they were surveyed.
    pub fn resident(&self, size: u64) -> u64 {
        let bytes = |set: &Ranges| set.within(0..size).map(|it| it.end - it.start).sum::<u64>();
        bytes(&self.parts).saturating_sub(bytes(&self.missing))
    }
}

/// Returns true if a range overlaps another one of a set, or follows it: they become one.
fn touches(set: &Ranges, range: &Range<u64>) -> bool {
    let around = range.start.saturating_sub(1)..range.end.saturating_add(1);
    set.within(around).next().is_some()
}

/// The ranges of a part that are not resident.
fn ranges(part: Missing<'_>) -> impl Iterator<Item = Range<u64>> {
    let page = page_size();
    let whole = part.pages.is_empty().then_some(part.start..part.end);
    let bits = part.pages.iter().zip(0..).flat_map(|(byte, at)| {
        (0..8)
            .filter(move |bit| byte & 1 << bit != 0)
            .map(move |bit| at * 8 + bit)
    });
    let pages = bits.map(move |number: u64| {
        let start = part.start.saturating_add(number * page);
        start..start.saturating_add(page).min(part.end)
    });
    whole.into_iter().chain(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, end: u64, pages: &[u8]) -> Missing<'_> {
        Missing { start, end, pages }
    }

    #[test]
    fn parts_become_ranges() {
        let page = page_size();
        let mut surveyed = Surveyed::default();
        surveyed.add(part(10 * page, u64::MAX, &[]), FEW);
        surveyed.add(part(0, page, &[]), FEW);
        // The bits are those of the pages 1, 8 and 9.
        surveyed.add(part(page, 10 * page, &[0b1000_0001, 1]), FEW);
        let expected = [0..2 * page, 8 * page..u64::MAX];
        assert_eq!(surveyed.missing, expected.into_iter().collect());
    }

    /// The program may have read the pages that the second survey has not found missing, and another process may have
    /// evicted those that it has.
    #[test]
    fn the_first_survey_of_a_part_counts() {
        let page = page_size();
        let mut surveyed = Surveyed::default();
        surveyed.add(part(0, 8 * page, &[0b1111_0000]), FEW);
        surveyed.add(part(0, 16 * page, &[0b0000_1111, 0b1]), FEW);
        let expected = std::iter::once(4 * page..9 * page);
        assert_eq!(surveyed.missing, expected.collect());
        let unknown: Vec<_> = surveyed.unknown(20 * page).collect();
        assert_eq!(unknown.first(), Some(&(16 * page..20 * page)));
        assert_eq!(unknown.len(), 1);
        assert_eq!(surveyed.resident(20 * page), 11 * page);
    }

    /// A large file is read in order. Pages at its beginning were cached.
    #[test]
    fn a_part_that_makes_no_more_ranges_is_added_to_a_full_file() {
        let page = page_size();
        let mut surveyed = Surveyed::default();
        let window = 64 * page;
        surveyed.add(part(0, window, &[0b0101_0101; 8]), FEW);
        let ranges = surveyed.ranges();
        surveyed.add(part(window, 2 * window, &[0b0101_0101; 8]), FEW);
        assert_eq!(surveyed.ranges(), ranges, "no room");
        for start in (2..1000).map(|number: u64| number * window) {
            surveyed.add(part(start, start + window, &[]), FEW);
        }
        assert_eq!(surveyed.ranges(), ranges + 2);
        let unknown: Vec<_> = surveyed.unknown(1000 * window).collect();
        assert_eq!(unknown.len(), 1);
        assert_eq!(unknown[0], window..2 * window);
    }

    #[test]
    fn any_parts_can_be_added() {
        let mut surveyed = Surveyed::default();
        for start in [0, 1, u64::MAX - 1, u64::MAX, 7] {
            for end in [0, u64::MAX, 5] {
                for pages in [&[][..], &[255; 256]] {
                    surveyed.add(part(start, end, pages), share(1));
                    Surveyed::default().add(part(start, end, pages), usize::MAX);
                }
            }
        }
        assert!(surveyed.missing.iter().all(|range| range.start < range.end));
    }

    /// A program may write anything into the channel.
    #[test]
    fn the_number_of_ranges_is_bounded() {
        let page = page_size();
        let mut surveyed = Surveyed::default();
        let window = 256 * 8 * page;
        let every_second = [0b0101_0101; 256];
        for start in (0..100).map(|number: u64| 2 * number * window) {
            surveyed.add(part(start, start + window, &every_second), 10_000);
        }
        let ranges = surveyed.ranges();
        assert!((5000..=10_000).contains(&ranges), "{ranges}");
        // Parts that were not added were not surveyed.
        let is_surveyed = |start| surveyed.unknown(start + window).all(|it| it.end <= start);
        assert!(is_surveyed(0) && !is_surveyed(2 * window * 99));
        // One range has room, and joins the others.
        surveyed.add(part(0, u64::MAX, &[]), 10_000);
        assert_eq!(surveyed.unknown(u64::MAX).count(), 0);
        assert_eq!(surveyed.missing.end(), u64::MAX);
        let (other, before) = (surveyed.clone(), surveyed.clone());
        surveyed.unite(other, surveyed.ranges());
        assert_eq!(surveyed, before);
    }

    /// The number of other surveyed files makes no difference.
    #[test]
    fn a_small_file_of_which_every_second_page_is_resident_is_surveyed() {
        let mut event = Event {
            kind: nowait_ahead_channel::Kind::Surveyed,
            tid: 1,
            fd: -1,
            id: (1, 2),
            time: 0,
            stats: 0,
            pages: 0x5555_5555_5555_5555 | 1 << 63,
            path: Vec::new(),
        };
        let surveyed = Surveyed::opened(&event);
        assert_eq!(surveyed.missing.len(), 32);
        let mut again = Surveyed::opened(&event);
        event.pages = u64::MAX;
        again.add_opened(&event, share(usize::MAX));
        assert_eq!(again, surveyed);
    }
}
