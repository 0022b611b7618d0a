//! The missing pages of a range, and their eviction.

use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

use super::table::WINDOW;
use crate::ranges::Ranges;
use crate::{Answer, Probe, Source, page_size};

/// The time for which all late pages are taken for those of this process.
const AT_ONCE: Duration = Duration::from_millis(5);
/// The time for which a readahead of this process is waited for. Few take longer.
const READAHEAD: Duration = Duration::from_millis(500);

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

/// The pages that are to be evicted again after an attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Left {
    /// Those that were resident after it.
    pub stayed: Ranges,
    /// Those that mincore(2) has not reported, which may be being read.
    pub unseen: Vec<Unseen>,
}

/// Pages that were not resident before an attempt. The kernel may be reading the first of them ahead.
#[derive(Clone, Debug)]
pub(super) struct Unseen {
    /// The time of the attempt.
    since: Instant,
    range: Range<u64>,
    before: Before,
}

/// The pages before those that may be being read ahead, in their window.
#[derive(Clone, Debug)]
enum Before {
    /// None are known. The kernel reads nothing ahead from here.
    Unknown,
    /// Pages that were evicted.
    Evicted(Range<u64>),
    /// Pages that were resident before the file was used. A read of one of them may have started a readahead.
    Resident,
}

impl Unseen {
    /// The pages that the kernel may have read ahead since: they begin where other pages end. If one of those was evicted and
    /// is resident again, another program has read it, and those after it.
    fn read_ahead(&self, resident: &Ranges) -> Option<Range<u64>> {
        if self.since.elapsed() > READAHEAD {
            return None;
        }
        let first = resident.within(self.range.clone()).next()?;
        let by_others = match &self.before {
            Before::Unknown => return None,
            Before::Evicted(before) => resident.within(before.clone()).next().is_some(),
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
            Before::Unknown | Before::Resident => range.start,
        };
        let resident = resident(probe, start..range.end);
        let is_new = since.elapsed() < AT_ONCE;
        let late: Vec<Range<u64>> = match is_new {
            true => resident.within(range.clone()).collect(),
            false => self.read_ahead(&resident).into_iter().collect(),
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
        let may_follow = !matches!(unseen.before, Before::Unknown);
        let is_followed = may_follow && unseen.since.elapsed() <= READAHEAD;
        if !unseen.range.is_empty() && (is_new || is_followed) {
            left.unseen.push(unseen);
        }
    }
}

impl Left {
    pub fn is_empty(&self) -> bool {
        self.stayed.is_empty() && self.unseen.is_empty()
    }

    /// The pages of a surveyed part that were not resident before the file was used, and are now.
    pub fn arrived(&self, part: &Range<u64>, missing: &Ranges) -> Ranges {
        let resident: Ranges = missing.gaps(part.clone()).collect();
        let read_ahead = self.unseen.iter().filter_map(|it| it.read_ahead(&resident));
        self.stayed.within(part.clone()).chain(read_ahead).collect()
    }

    /// Evicts the pages of a file of `size` bytes. Returns those that are to be evicted again.
    pub fn evict(self, probe: &Probe<'_>, size: u64) -> Left {
        let mut left = Left::default();
        for unseen in self.unseen {
            unseen.evict(probe, &mut left);
        }
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
            // A range begins with its window, or where pages end that were resident before.
            let first = match range.start.is_multiple_of(WINDOW) {
                true => Before::Unknown,
                false => Before::Resident,
            };
            let before = |gap: &Range<u64>| match evicted.within(range.start..gap.start).last() {
                Some(before) => Before::Evicted(before),
                None if gap.start == range.start => first.clone(),
                None => Before::Unknown,
            };
            let unseen = |gap: Range<u64>| Unseen {
                since,
                before: before(&gap),
                range: gap,
            };
            left.unseen.extend(resident.gaps(in_file).map(unseen));
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
