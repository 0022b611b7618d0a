//! The windows of a file: which are known, which are in use, which are to be evicted. No system
//! calls.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::sync::Weak;
use std::time::{Duration, Instant};

use super::pages::{Before, Left, WINDOW};
use crate::page_size;
use crate::ranges::Ranges;

/// The greatest number of windows of a file that are not in use and not yet evicted.
const IDLE: usize = 8;
/// The time for which the survey of a window without pages to evict is used.
const MAX_AGE: Duration = Duration::from_secs(1);

/// An operation whose future was dropped. It can be upgraded until the operation is complete.
pub type InProgress = Weak<dyn Any + Send + Sync>;

/// The windows that a read or write uses.
#[derive(Clone, Debug)]
pub struct Span(RangeInclusive<u64>);

/// The windows of a file.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// The size of the file when it was last queried.
    pub size: u64,
    pub known: BTreeMap<u64, Window>,
    /// The windows that may have pages to evict and are not in use, with the time of their last
    /// use. Windows of which pages stayed when they were evicted are in `left_behind` instead.
    pub idle: BTreeSet<(u64, u64)>,
    pub left_behind: BTreeSet<u64>,
    /// The number of windows in `idle` that were read or written, and not only reached by
    /// readahead.
    pub used_idle: usize,
    /// The number of uses so far.
    pub clock: u64,
    /// The uses by operations whose futures were dropped.
    pub abandoned: Vec<(Span, InProgress)>,
    /// The number of windows that were forgotten so far.
    pub forgotten: u64,
    /// True if the file is in use.
    pub is_open: bool,
    /// How often the last use of the file has ended so far.
    pub closes: u64,
    /// The pages of windows of a closed file that are to be evicted again. These windows are not
    /// known.
    pub left: BTreeMap<u64, Left>,
}

/// A part of a file that is evicted at once.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The end of the surveyed part.
    surveyed: u64,
    /// The ranges that were not resident, in order.
    missing: Ranges,
    /// Reads and writes in progress.
    pub users: u32,
    /// The time of the last use.
    pub last_use: u64,
    /// The closes of the file before the last use.
    closes: u64,
    /// True if it was read or written since it was surveyed, and not only reached by readahead.
    used: bool,
    /// True if this process may have made pages of the missing ranges resident: the window is to be evicted.
    pub is_to_be_evicted: bool,
    /// The time at which the survey of a window without pages to evict is too old.
    expires: Option<Instant>,
}

impl Windows {
    /// The parts of these windows that lie within the file, or that are going to be written up to
    /// `written`, and were not surveyed.
    pub fn gaps(&self, span: RangeInclusive<u64>, written: u64) -> Vec<Range<u64>> {
        let end = self.size.max(written).next_multiple_of(page_size());
        let gaps = span.map(|index| {
            let start = index * WINDOW;
            let surveyed = self.known.get(&index).map_or(start, |it| it.surveyed);
            surveyed..end.min(start + WINDOW)
        });
        gaps.filter(|gap| gap.start < gap.end).collect()
    }

    /// Stores a survey, unless another thread has surveyed the same part. `forgotten` is the number
    /// of windows that were forgotten before the survey.
    pub fn add(&mut self, gap: Range<u64>, missing: &Ranges, forgotten: u64) {
        if self.forgotten != forgotten {
            return;
        }
        let index = gap.start / WINDOW;
        let window = self.known.entry(index).or_insert_with(|| Window {
            surveyed: index * WINDOW,
            closes: self.closes,
            ..Window::default()
        });
        if window.surveyed == gap.start {
            missing.iter().for_each(|it| window.missing.add(it));
            // Pages that were left when the file was closed were not resident before.
            if let Some(left) = self.left.get(&index) {
                let arrived = left.arrived(&gap, missing);
                arrived.iter().for_each(|it| window.missing.add(it));
            }
            window.surveyed = gap.end;
            window
                .expires
                .get_or_insert_with(|| Instant::now() + MAX_AGE);
        }
    }

    /// Begins a use of the windows that the file has. Returns `None` if all their pages were
    /// resident: then no page becomes resident.
    pub fn enter(&mut self, span: RangeInclusive<u64>, last: u64) -> Option<Span> {
        let first = *span.start();
        let end = span
            .take_while(|index| self.known.contains_key(index))
            .last()?;
        let windows = first..=end;
        let mut all = self.known.range(windows.clone());
        if all.all(|(_, window)| window.missing.is_empty()) {
            return None;
        }
        for index in windows.clone() {
            self.set_busy(index);
        }
        self.clock += 1;
        for (index, window) in self.known.range_mut(windows.clone()) {
            window.last_use = self.clock;
            window.closes = self.closes;
            window.users += 1;
            window.used |= *index <= last;
            window.is_to_be_evicted = !window.missing.is_empty();
        }
        Some(Span(windows))
    }

    /// Ends the uses by operations that are complete.
    pub fn end_abandoned(&mut self) {
        let ended = |(_, operation): &mut (Span, InProgress)| operation.strong_count() == 0;
        let ended: Vec<_> = self.abandoned.extract_if(.., ended).collect();
        for (span, _) in ended {
            self.leave(&span);
        }
    }

    /// Forgets the windows without pages to evict whose surveys are too old.
    pub fn forget_expired(&mut self, span: RangeInclusive<u64>) {
        let is_idle = |it: &Window| !it.is_to_be_evicted && it.users == 0;
        let mut all = self.known.range(span.clone());
        if !all.any(|(_, window)| is_idle(window)) {
            return;
        }
        let now = Instant::now();
        let is_old = |it: &Window| is_idle(it) && it.expires.is_some_and(|at| at <= now);
        let old: Vec<u64> = self
            .known
            .range(span)
            .filter(|(_, window)| is_old(window))
            .map(|(index, _)| *index)
            .collect();
        for index in old {
            self.known.remove(&index);
            self.forgotten += 1;
        }
    }

    pub fn leave(&mut self, span: &Span) {
        for index in span.0.clone() {
            let Some(window) = self.known.get_mut(&index) else {
                continue;
            };
            window.users -= 1;
            if window.users == 0 && window.is_to_be_evicted {
                self.idle.insert((window.last_use, index));
                self.used_idle += usize::from(window.used);
            }
        }
    }

    /// Takes a window out of the sets of those that are to be evicted.
    pub fn set_busy(&mut self, index: u64) {
        let Some(window) = self.known.get(&index) else {
            return;
        };
        if self.idle.remove(&(window.last_use, index)) {
            self.used_idle -= usize::from(window.used);
        }
        self.left_behind.remove(&index);
    }

    /// Takes the windows that are to be evicted, if there are more than [`IDLE`]: those that were
    /// used least recently, and one of those of which pages stayed.
    pub fn take_due(&mut self) -> Vec<u64> {
        let mut due = Vec::new();
        while self.used_idle > IDLE
            && let Some((_, index)) = self.idle.pop_first()
        {
            let used = self.known.get(&index).is_some_and(|it| it.used);
            self.used_idle -= usize::from(used);
            due.push(index);
        }
        if !due.is_empty() {
            due.extend(self.left_behind.pop_first());
            due.sort_unstable();
            due.dedup();
        }
        due
    }

    /// Opens the file. Forgets the windows that have no pages to evict: other programs may have read the file since it was
    /// closed, so these are surveyed again.
    pub fn open(&mut self) {
        self.is_open = true;
        self.known
            .retain(|_, window| window.is_to_be_evicted || window.users > 0);
        self.forgotten += 1;
    }

    /// Closes the file. Takes all windows that may have pages to evict.
    pub fn close(&mut self) -> Vec<u64> {
        self.is_open = false;
        self.closes += 1;
        self.end_abandoned();
        self.idle.clear();
        self.left_behind.clear();
        self.used_idle = 0;
        let to_evict = self
            .known
            .iter()
            .filter(|(_, window)| window.is_to_be_evicted);
        let to_evict = to_evict.map(|(index, _)| *index);
        let all: BTreeSet<u64> = to_evict.chain(self.left.keys().copied()).collect();
        all.into_iter().collect()
    }

    /// The ranges of each of these windows that are to be evicted after the file was closed, and false
    /// if some windows are in use. The windows are surveyed again at their next use. If the file is open again, the windows
    /// that were used since are left to the next close.
    pub fn take_left(&mut self, indices: &[u64]) -> (Vec<(u64, Left)>, bool) {
        let mut all = Vec::new();
        let mut unused = true;
        for index in indices {
            let Some(window) = self.known.get(index) else {
                let left = self.left.get(index);
                all.extend(left.map(|left| (*index, left.clone())));
                continue;
            };
            if self.is_open && window.closes == self.closes {
                continue;
            }
            if window.users > 0 {
                unused = false;
                continue;
            }
            let ranges = self.ranges(&[*index]);
            let missing = ranges.into_iter().map(|(range, _)| range).collect();
            let left = Left::of_window(missing, self.before(*index));
            self.set_busy(*index);
            self.known.remove(index);
            self.forgotten += 1;
            self.left.insert(*index, left.clone());
            all.push((*index, left));
        }
        (all, unused)
    }

    /// The pages before a window. This process may have started a readahead that begins with the window if it has used the
    /// window before it.
    fn before(&self, index: u64) -> Before {
        let start = index * WINDOW;
        let last_page = start.saturating_sub(page_size())..start;
        let known = |it: u64| self.known.get(&it).map(|window| &window.missing);
        let left = |it: u64| self.left.get(&it).map(|left| &left.stayed);
        let missing = index
            .checked_sub(1)
            .and_then(|it| known(it).or_else(|| left(it)));
        match missing {
            None => Before::Unused,
            Some(missing) if missing.contains(last_page.start) => Before::Evicted(last_page),
            Some(_) => Before::Resident,
        }
    }

    /// The ranges of windows that are to be evicted, joined if they are adjacent, with the windows
    /// of each.
    pub fn ranges(&self, indices: &[u64]) -> Vec<(Range<u64>, Vec<u64>)> {
        let mut all: Vec<(Range<u64>, Vec<u64>)> = Vec::new();
        for index in indices {
            let Some(window) = self.known.get(index) else {
                continue;
            };
            for range in window.missing.iter() {
                let mut range = range;
                // The folio at the end of the file may extend beyond it.
                if range.end == window.surveyed && self.size <= window.surveyed {
                    range.end = (index + 1) * WINDOW;
                }
                match all.last_mut() {
                    Some((last, of)) if last.end == range.start => {
                        last.end = range.end;
                        of.push(*index);
                    }
                    _ => all.push((range, vec![*index])),
                }
            }
        }
        all
    }

    /// The windows of an eviction that was dropped before it was run are evicted later.
    pub fn stay(&mut self, indices: &[u64]) {
        let (known, idle) = (&self.known, &self.idle);
        self.left_behind.extend(indices.iter().filter(|index| {
            let is_left = |it: &Window| {
                it.users == 0 && it.is_to_be_evicted && !idle.contains(&(it.last_use, **index))
            };
            known.get(index).is_some_and(is_left)
        }));
    }

    /// Ends the attempts to evict pages of windows after the close with this number. Returns true if no attempts are made
    /// for others. After a later close, that one makes all attempts.
    pub fn give_up(&mut self, indices: &[u64], closes: u64) -> bool {
        if self.closes != closes {
            return false;
        }
        for index in indices {
            if let Some(left) = self.left.get_mut(index) {
                left.unseen = Vec::new();
            }
        }
        self.left.retain(|_, left| !left.is_empty());
        self.left.keys().all(|index| indices.contains(index))
    }

    /// Stores the result of an eviction of windows that were not in use at the time `clock`.
    /// Windows without pages are surveyed again at their next use: at once if `forgets`, otherwise
    /// after some time.
    pub fn evicted(&mut self, indices: &[u64], stayed: &BTreeSet<u64>, clock: u64, forgets: bool) {
        for index in indices {
            let used_since = |it: &Window| it.users > 0 || it.last_use > clock;
            if self.known.get(index).is_none_or(used_since) {
                continue;
            }
            self.set_busy(*index);
            if stayed.contains(index) {
                self.left_behind.insert(*index);
                continue;
            }
            // The pages that stayed at an earlier close are evicted, too. Others may still arrive.
            if let Some(left) = self.left.get_mut(index) {
                left.stayed = Ranges::default();
            }
            self.left.retain(|_, left| !left.is_empty());
            if forgets {
                self.known.remove(index);
                self.forgotten += 1;
            } else if let Some(window) = self.known.get_mut(index) {
                (window.is_to_be_evicted, window.used) = (false, false);
                window.expires = Some(Instant::now() + MAX_AGE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Another thread reads the window, evicts it and forgets it, while this one surveys it and sees
    /// the pages of that read.
    #[test]
    fn a_survey_of_pages_that_another_reader_had_is_not_stored() {
        let mut windows = Windows {
            size: WINDOW,
            ..Windows::default()
        };
        let gap = 0..WINDOW;
        assert_eq!(windows.gaps(0..=0, 0), std::slice::from_ref(&gap));
        let forgotten = windows.forgotten;
        let all = Ranges::from_iter([gap.clone()]);

        windows.add(gap.clone(), &all, windows.forgotten);
        let span = windows.enter(0..=0, 0).unwrap();
        windows.leave(&span);
        windows.evicted(&[0], &BTreeSet::new(), windows.clock, true);

        // All pages were resident.
        windows.add(gap.clone(), &Ranges::default(), forgotten);
        assert_eq!(windows.gaps(0..=0, 0), [gap]);
    }

    /// The windows 0 and 1 were used, the former without an effect, and the windows 4 and 5.
    #[test]
    fn the_pages_before_a_window_are_known_if_the_window_before_it_was_used() {
        let mut windows = Windows {
            size: 9 * WINDOW,
            ..Windows::default()
        };
        let survey = |index: u64| index * WINDOW..(index + 1) * WINDOW;
        windows.add(survey(0), &Ranges::default(), 0);
        for index in [1, 4, 5] {
            let missing = Ranges::from_iter([survey(index)]);
            windows.add(survey(index), &missing, 0);
        }
        for span in [0..=1, 4..=5] {
            let span = windows.enter(span, 5).unwrap();
            windows.leave(&span);
        }
        assert_eq!(windows.before(0), Before::Unused);
        assert_eq!(windows.before(1), Before::Resident);
        assert_eq!(windows.before(4), Before::Unused);
        let last_page = Before::Evicted(5 * WINDOW - page_size()..5 * WINDOW);
        assert_eq!(windows.before(5), last_page);
        // The windows of an eviction are taken in order.
        windows.take_left(&[1, 4]);
        assert_eq!(windows.before(5), last_page);
    }

    /// Surveys the first window, no page of which is resident, and reads it.
    fn use_first(windows: &mut Windows) {
        let gap = 0..WINDOW;
        let missing = Ranges::from_iter([gap.clone()]);
        windows.add(gap, &missing, windows.forgotten);
        let span = windows.enter(0..=0, 0).unwrap();
        windows.leave(&span);
    }

    /// The attempts after a close go on while the file is used again.
    #[test]
    fn windows_of_the_next_use_are_evicted_at_its_end() {
        let mut windows = Windows {
            size: WINDOW,
            ..Windows::default()
        };
        windows.open();
        use_first(&mut windows);
        assert_eq!(windows.close(), [0]);
        let (taken, unused) = windows.take_left(&[0]);
        assert!(unused && taken[0].1.stayed.has(0..WINDOW));
        windows.open();
        use_first(&mut windows);
        let (taken, unused) = windows.take_left(&[0]);
        assert!(unused && taken.is_empty(), "{taken:?}");
        assert_eq!(windows.close(), [0]);
        assert!(!windows.give_up(&[0], 1), "the second close is responsible");
        assert_eq!(windows.take_left(&[0]).0.len(), 1);
        assert!(windows.give_up(&[0], 2));
    }

    /// The file is opened before the first attempt of its close, and not used.
    #[test]
    fn windows_of_the_last_use_are_evicted_while_the_file_is_open_again() {
        let mut windows = Windows {
            size: 2 * WINDOW,
            ..Windows::default()
        };
        windows.open();
        for index in [0, 1] {
            let gap = index * WINDOW..(index + 1) * WINDOW;
            windows.add(gap.clone(), &Ranges::from_iter([gap]), windows.forgotten);
        }
        let span = windows.enter(0..=1, 1).unwrap();
        windows.leave(&span);
        assert_eq!(windows.close(), [0, 1]);
        windows.open();
        // A window that is used again is left to the next close.
        let span = windows.enter(1..=1, 1).unwrap();
        windows.leave(&span);
        let (taken, unused) = windows.take_left(&[0, 1]);
        assert!(unused);
        let taken: Vec<_> = taken.into_iter().map(|(index, _)| index).collect();
        assert_eq!(taken, [0]);
        assert!(windows.close().contains(&1));
    }

    /// Pages stayed at a close. The next use of the file evicts them before it ends.
    #[test]
    fn pages_that_a_later_use_has_evicted_are_not_evicted_again() {
        let mut windows = Windows {
            size: WINDOW,
            ..Windows::default()
        };
        windows.open();
        use_first(&mut windows);
        windows.close();
        assert_eq!(windows.take_left(&[0]).0.len(), 1);
        windows.open();
        use_first(&mut windows);
        windows.evicted(&[0], &BTreeSet::new(), windows.clock, true);
        assert!(windows.close().is_empty());
        assert!(windows.take_left(&[0]).0.is_empty());
    }

    #[test]
    fn windows_are_in_use_until_the_operation_of_a_dropped_future_is_complete() {
        let mut windows = Windows {
            size: WINDOW,
            ..Windows::default()
        };
        let gap = 0..WINDOW;
        windows.add(gap.clone(), &Ranges::from_iter([gap]), 0);
        let span = windows.enter(0..=0, 0).unwrap();
        let operation: Arc<dyn Any + Send + Sync> = Arc::new(());
        windows.abandoned.push((span, Arc::downgrade(&operation)));
        windows.end_abandoned();
        assert_eq!(windows.known[&0].users, 1);
        drop(operation);
        windows.end_abandoned();
        assert_eq!((windows.known[&0].users, windows.used_idle), (0, 1));
    }
}
