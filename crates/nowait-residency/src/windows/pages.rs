//! The missing pages of a range, and their eviction.

use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

use crate::ranges::Ranges;
use crate::{Answer, Probe, Source, page_size};

/// The bytes that are evicted at once. Smaller windows read more from the device, because a window
/// that is evicted too early is read again. It is a multiple of the greatest folio.
pub const WINDOW: u64 = 8 << 20;
/// The time for which all late pages are taken for those of this process.
const AT_ONCE: Duration = Duration::from_millis(5);
/// The time for which a readahead of this process is waited for. Few take longer. The first attempt after it is the last
/// that evicts late pages: attempts are delayed if processors are busy.
const READAHEAD: Duration = Duration::from_secs(1);
/// The time after which late pages are those of other programs, also for an attempt that was delayed, and for the next use of
/// the file.
const LATEST: Duration = Duration::from_secs(2);

/// The parts of a range that are not resident. Pages after the end of the file are not. `None` if
/// the kernel does not report residency.
///
/// ```
/// use nowait_residency::{Probe, windows::missing};
/// let file = std::fs::File::open("Cargo.toml")?;
/// if let Some(missing) = missing(&Probe::new(&file)?, 0..u64::MAX) {
///     for range in missing.iter() {
///         println!("{range:?} is not in the page cache");
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn missing(probe: &Probe<'_>, range: Range<u64>) -> Option<Ranges> {
    let map = probe.page_map(range.clone()).ok()?.known()?;
    let mut missing = Ranges::default();
    let mut end = range.start;
    for resident in map.resident() {
        missing.add(end..resident.start);
        end = resident.end.next_multiple_of(page_size());
    }
    missing.add(end..range.end);
    Some(missing)
}

/// Evicts the clean pages of a range that are not in use: posix_fadvise(2), `POSIX_FADV_DONTNEED`.
/// The kernel begins to write changed pages, which stay. A range that ends beyond `i64::MAX` is that
/// to the end of the file. No file has a page after `i64::MAX`.
///
/// # Errors
/// The errors of posix_fadvise(2).
pub fn evict(fd: impl AsFd, range: &Range<u64>) -> std::io::Result<()> {
    if range.start > i64::MAX as u64 {
        // Linux 7.2 returns EINVAL for such an offset, and older kernels 0.
        return Ok(());
    }
    let len = match range.end {
        // A length of 0 means up to the end of the file.
        end if end > i64::MAX as u64 => None,
        end => match NonZeroU64::new(end.saturating_sub(range.start)) {
            None => return Ok(()),
            some => some,
        },
    };
    Ok(fadvise(fd, range.start, len, Advice::DontNeed)?)
}

/// Evicts a range. Returns true if none of its pages is resident afterwards.
pub(super) fn is_evicted(probe: &Probe<'_>, range: Range<u64>) -> bool {
    let evicted = evict(probe.fd(), &range);
    let left = probe.residency(range).ok().and_then(Answer::known);
    evicted.is_ok() && left.is_none_or(|left| left.cached == 0)
}

/// Returns true if no page can arrive after an eviction that left none. mincore(2) does not report
/// pages that are being read.
pub(super) fn is_sure(probe: &Probe<'_>) -> bool {
    probe.source() == Ok(Source::Cachestat)
}

/// The pages of a window that are to be evicted, at first or again after an attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Left {
    /// Before the first attempt, those that were not resident before the file was used. After an attempt, those that
    /// were resident after it.
    pub stayed: Ranges,
    /// Those that mincore(2) has not reported, which may be being read.
    pub unseen: Vec<Unseen>,
    /// The pages before the window. `None` after the first attempt.
    before_window: Option<Before>,
}

/// Pages that were not resident before an attempt. The kernel may be reading the first of them ahead.
#[derive(Clone, Debug)]
pub(super) struct Unseen {
    /// The time of the attempt.
    since: Instant,
    range: Range<u64>,
    before: Before,
}

/// The pages before those that may be being read ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// This process has started no readahead that begins after them.
    Unused,
    /// Pages that were not resident before the file was used, and were evicted.
    Evicted(Range<u64>),
    /// Pages that were resident before the file was used, or that stayed. A read of one of them may have started a
    /// readahead. They are resident in any case, which does not show if another program reads them.
    Resident,
}

impl Unseen {
    /// The pages that became resident after the attempt and that the kernel may have read ahead for this process. A
    /// readahead begins directly after other pages. If these other pages were evicted and one of them is resident again,
    /// another program reads the file, and the new pages are taken for those of that program. `stayed` is the pages that
    /// could not be evicted.
    fn read_ahead(&self, resident: &Ranges, stayed: &Ranges) -> Option<Range<u64>> {
        if self.since.elapsed() > LATEST {
            return None;
        }
        let first = resident.within(self.range.clone()).next()?;
        let by_others = match &self.before {
            Before::Unused => return None,
            Before::Evicted(before) => {
                let mut resident = resident.within(before.clone());
                !resident.all(|it| stayed.has(it))
            }
            Before::Resident => false,
        };
        (first.start == self.range.start && !by_others).then_some(first)
    }

    /// Evicts the pages that are resident by now.
    fn evict(self, probe: &Probe<'_>, left: &mut Left) {
        let Unseen {
            since,
            range,
            before,
        } = &self;
        let start = match before {
            Before::Evicted(before) => before.start,
            Before::Unused | Before::Resident => range.start,
        };
        let resident = resident(probe, start..range.end);
        let age = since.elapsed();
        let is_new = age < AT_ONCE;
        let late: Vec<Range<u64>> = match is_new {
            true => resident.within(range.clone()).collect(),
            false => self
                .read_ahead(&resident, &left.stayed)
                .into_iter()
                .collect(),
        };
        let mut unseen = self;
        for range in late {
            evict_resident(probe, &range, &mut left.stayed);
            if range.start == unseen.range.start {
                unseen = Unseen {
                    since: unseen.since,
                    range: range.end..unseen.range.end,
                    before: Before::Evicted(range),
                };
            }
        }
        let may_follow = unseen.before != Before::Unused;
        let is_followed = may_follow && age <= READAHEAD;
        if !unseen.range.is_empty() && (is_new || is_followed) {
            left.unseen.push(unseen);
        }
    }
}

impl Left {
    /// The missing pages of a window before the first attempt. `before` is the pages before the window.
    pub fn of_window(missing: Ranges, before: Before) -> Left {
        Left {
            stayed: missing,
            unseen: Vec::new(),
            before_window: Some(before),
        }
    }

    /// The pages before a gap between the resident pages of a range of `stayed`. `evicted` is the pages that the attempt
    /// has evicted. `None` if the gap is not being read: its pages stayed after an earlier attempt, and were evicted since.
    fn before(&self, range: &Range<u64>, gap: &Range<u64>, evicted: &Ranges) -> Option<Before> {
        let before_window = self.before_window.as_ref()?;
        Some(match evicted.within(range.start..gap.start).last() {
            Some(evicted) => Before::Evicted(evicted),
            None if gap.start.is_multiple_of(WINDOW) => before_window.clone(),
            None => Before::Resident,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.stayed.is_empty() && self.unseen.is_empty()
    }

    /// The pages of a surveyed part that were not resident before the file was used, and are now.
    pub fn arrived(&self, part: &Range<u64>, missing: &Ranges) -> Ranges {
        let resident: Ranges = missing.gaps(part.clone()).collect();
        let read_ahead = |it: &Unseen| it.read_ahead(&resident, &self.stayed);
        let read_ahead = self.unseen.iter().filter_map(read_ahead);
        self.stayed.within(part.clone()).chain(read_ahead).collect()
    }

    /// Evicts the pages of a file of `size` bytes. Returns those that are to be evicted again.
    pub fn evict(self, probe: &Probe<'_>, size: u64) -> Left {
        let mut left = Left::default();
        for range in self.stayed.iter() {
            if is_sure(probe) {
                if !is_evicted(probe, range.clone()) {
                    add_resident(&mut left.stayed, probe, range.clone());
                }
                continue;
            }
            // The pages that were resident are not being read.
            let resident = resident(probe, range.clone());
            let mut stayed = Ranges::default();
            evict_resident(probe, &range, &mut stayed);
            let evicted = resident.without(&stayed);
            stayed.iter().for_each(|it| left.stayed.add(it));
            // No page after the end of the file is being read.
            let in_file = range.start..range.end.min(size.next_multiple_of(page_size()));
            let since = Instant::now();
            let unseen = |gap: Range<u64>| {
                let before = self.before(&range, &gap, &evicted)?;
                let range = gap;
                Some(Unseen {
                    since,
                    range,
                    before,
                })
            };
            left.unseen
                .extend(resident.gaps(in_file).filter_map(unseen));
        }
        for unseen in &self.unseen {
            unseen.clone().evict(probe, &mut left);
        }
        left
    }
}

/// Evicts a range, and adds the pages that stayed.
fn evict_resident(probe: &Probe<'_>, range: &Range<u64>, stayed: &mut Ranges) {
    if !is_evicted(probe, range.clone()) {
        let after = resident(probe, range.clone());
        after.iter().for_each(|it| stayed.add(it));
    }
}

/// The resident parts of a range.
fn resident(probe: &Probe<'_>, range: Range<u64>) -> Ranges {
    let map = probe.page_map(range).ok().and_then(Answer::known);
    map.iter().flat_map(|map| map.resident()).collect()
}

/// Adds the resident pages of a range. The counts of cachestat(2) have the pages that are being read,
/// and page maps may not.
fn add_resident(ranges: &mut Ranges, probe: &Probe<'_>, range: Range<u64>) {
    let Some(count) = probe.residency(range.clone()).ok().and_then(Answer::known) else {
        return ranges.add(range);
    };
    let middle = range.start.midpoint(range.end) / page_size() * page_size();
    if count.cached == 0 {
    } else if count.cached >= count.pages || middle <= range.start {
        ranges.add(range);
    } else {
        add_resident(ranges, probe, range.start..middle);
        add_resident(ranges, probe, middle..range.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(range: Range<u64>) -> Range<u64> {
        range.start * page_size()..range.end * page_size()
    }

    #[test]
    fn a_readahead_is_expected_after_pages_that_a_use_may_have_read() {
        let window = pages(0..WINDOW / page_size());
        let (range, next) = (pages(10..90), WINDOW..WINDOW + page_size());
        let evicted = Ranges::from_iter([pages(20..30)]);
        let outside = Before::Evicted(pages(1..2));
        let first = Left::of_window(Ranges::default(), outside.clone());
        let before =
            |left: &Left, range: &Range<u64>, gap: Range<u64>| left.before(range, &gap, &evicted);
        let resident = Some(Before::Resident);
        assert_eq!(before(&first, &range, pages(10..20)), resident);
        let late = before(&first, &range, pages(30..90));
        assert_eq!(late, Some(Before::Evicted(pages(20..30))));
        assert_eq!(before(&first, &window, pages(0..20)), Some(outside.clone()));
        assert_eq!(before(&first, &next, next.clone()), Some(outside));
        // These are pages that stayed after an earlier attempt: no page of them is being read.
        let again = Left::default();
        for (range, gap) in [(range, pages(10..20)), (window, pages(0..20))] {
            assert_eq!(before(&again, &range, gap), None);
        }
    }

    #[test]
    fn late_pages_are_those_of_a_readahead_unless_another_program_reads_before_them() {
        let stayed = Ranges::from_iter([pages(7..8)]);
        let read_ahead = |since, before: &Before, resident: &[(u64, u64)]| {
            let unseen = Unseen {
                since,
                range: pages(10..100),
                before: before.clone(),
            };
            let resident = resident.iter().map(|&(start, end)| pages(start..end));
            unseen.read_ahead(&resident.collect(), &stayed)
        };
        let evicted = Before::Evicted(pages(5..10));
        let late = Some(pages(10..20));
        for (before, resident, expected) in [
            (&evicted, &[(10, 20), (30, 40)][..], &late),
            (&evicted, &[(6, 7), (10, 20)][..], &None),
            (&evicted, &[(7, 8), (10, 20)][..], &late),
            (&evicted, &[(11, 20)][..], &None),
            (&Before::Resident, &[(5, 20)][..], &late),
            (&Before::Resident, &[(11, 20)][..], &None),
            (&Before::Unused, &[(10, 20)][..], &None),
        ] {
            let found = read_ahead(Instant::now(), before, resident);
            assert_eq!(found, *expected, "{before:?} {resident:?}");
            let long_ago = Instant::now().checked_sub(LATEST * 2).unwrap();
            assert_eq!(read_ahead(long_ago, before, resident), None);
        }
    }
}
