//! The results of surveys of the pages of a file.

use std::ops::Range;

use nowait_ahead_channel::{Event, Missing};
use nowait_residency::page_size;

use nowait_residency::ranges::Ranges;

/// The surveyed parts of a file. The first survey of a part counts: later ones may have found pages that the program
/// has read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surveyed {
    /// The parts.
    parts: Ranges,
    /// The pages of these that were not resident. They are evicted; all others stay.
    pub missing: Ranges,
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
        surveyed.add_opened(event);
        surveyed
    }

    /// Adds the survey of a file that was opened once more.
    pub fn add_opened(&mut self, event: &Event) {
        const FIRST: u64 = 63;
        if event.pages == 0 {
            return;
        }
        let (start, end, first) = (0, FIRST * page_size(), event.pages & !(1 << FIRST));
        let pages = &first.to_le_bytes();
        self.add(Missing { start, end, pages });
        if event.pages >> FIRST != 0 {
            let (start, end, pages) = (end, u64::MAX, &[][..]);
            self.add(Missing { start, end, pages });
        }
        self.parts = Ranges::all();
    }

    /// Adds a part.
    pub fn add(&mut self, part: Missing<'_>) {
        for range in ranges(part) {
            for new in self.parts.gaps(range) {
                self.missing.add(new);
            }
        }
        self.parts.add(part.start..part.end);
    }

    /// Adds what another survey has found missing, also in parts that were surveyed before.
    pub fn unite(&mut self, other: Surveyed) {
        for (own, more) in [
            (&mut self.parts, other.parts),
            (&mut self.missing, other.missing),
        ] {
            more.iter().for_each(|range| own.add(range));
        }
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
        surveyed.add(part(10 * page, u64::MAX, &[]));
        surveyed.add(part(0, page, &[]));
        // The bits are those of the pages 1, 8 and 9.
        surveyed.add(part(page, 10 * page, &[0b1000_0001, 1]));
        let expected = [0..2 * page, 8 * page..u64::MAX];
        assert_eq!(surveyed.missing, expected.into_iter().collect());
    }

    /// The program may have read the pages that the second survey has not found missing, and another process may have
    /// evicted those that it has.
    #[test]
    fn the_first_survey_of_a_part_counts() {
        let page = page_size();
        let mut surveyed = Surveyed::default();
        surveyed.add(part(0, 8 * page, &[0b1111_0000]));
        surveyed.add(part(0, 16 * page, &[0b0000_1111, 0b1]));
        let expected = std::iter::once(4 * page..9 * page);
        assert_eq!(surveyed.missing, expected.collect());
        let unknown: Vec<_> = surveyed.unknown(20 * page).collect();
        assert_eq!(unknown.first(), Some(&(16 * page..20 * page)));
        assert_eq!(unknown.len(), 1);
        assert_eq!(surveyed.resident(20 * page), 11 * page);
    }

    #[test]
    fn any_parts_can_be_added() {
        let mut surveyed = Surveyed::default();
        for start in [0, 1, u64::MAX - 1, u64::MAX, 7] {
            for end in [0, u64::MAX, 5] {
                for pages in [&[][..], &[255; 256]] {
                    surveyed.add(part(start, end, pages));
                }
            }
        }
        assert!(surveyed.missing.iter().all(|range| range.start < range.end));
    }
}
