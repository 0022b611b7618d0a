//! The pages of a file that were resident before this process used the file, and the eviction of
//! the others.
//!
//! ```text
//!  begin ─► survey the windows of the range and those that readahead may reach ─► the read or write
//!  end ───► more than IDLE unused windows? ─► Eviction of those that were used least recently
//!  close ─► Eviction of all windows
//! ```
//! A window is surveyed once, before its first use. Pages that were resident then are never
//! evicted. Without a survey nothing is evicted.
//!
//! A window is not evicted while a read or write of it is in progress: pages that arrive later
//! would stay. Large folios need no care: readahead adds them only where no page is resident, they
//! are aligned to their size, and a window is aligned to more than that.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::num::NonZeroU64;
use std::ops::{Range, RangeInclusive};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Advice, fadvise, fstat};

use super::{Answer, Probe, page_size};
use crate::sys::Errno;
use crate::sys::process::{Owner, PerProcess};
use crate::sys::stat;
use crate::sys::sync::{Mutex, lock};

/// The bytes that are evicted at once. Smaller windows read more from the device, because a window
/// that is evicted too early is read again.
pub(crate) const WINDOW: u64 = 8 << 20;
/// The windows after a read that readahead may reach: twice a readahead of 16 MiB.
const AHEAD: u64 = 4;
/// The windows of a file that are unused and not yet evicted.
const IDLE: usize = 8;
/// The pauses of [`Eviction::finish`] while pages are read, written or locked by the kernel.
const PAUSES: u32 = 11;

/// The files of this process whose pages are kept.
static FILES: PerProcess<Mutex<Files>> = PerProcess::new();

/// Each file with the number of its users, by device and inode number.
type Files = HashMap<(u64, u64), (Arc<Kept>, usize)>;

/// The windows of one file. All open files of one inode share it: the pages that one has read are
/// not resident before the read of another.
#[derive(Debug)]
pub(crate) struct Kept {
    id: (u64, u64),
    process: Owner,
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    /// The size of the file when it was last queried.
    size: u64,
    known: BTreeMap<u64, Window>,
    /// The windows that may have pages to evict and are not in use, with the time of their last
    /// use.
    idle: BTreeSet<(u64, u64)>,
    /// The number of uses so far.
    clock: u64,
}

#[derive(Debug)]
struct Window {
    /// The end of the surveyed part.
    surveyed: u64,
    /// The ranges that were not resident, in order.
    missing: Vec<Range<u64>>,
    /// Reads and writes in progress.
    users: u32,
    used: u64,
    /// True if pages of the missing ranges may be resident.
    loose: bool,
}

/// The windows that a read or write uses.
pub(crate) type Span = RangeInclusive<u64>;

/// Windows that are to be evicted. Those of which pages stayed are evicted again later, also if it
/// is dropped before it was run.
#[derive(Debug)]
pub(crate) struct Eviction {
    kept: Arc<Kept>,
    windows: Vec<u64>,
}

impl Kept {
    /// The windows of an open file. [`close`](Kept::close) must be called as often.
    ///
    /// # Errors
    /// The errors of fstat(2).
    pub(crate) fn open(fd: impl AsFd) -> Result<Arc<Kept>, Errno> {
        let stat = fstat(fd)?;
        let id = (stat.st_dev, stat.st_ino);
        let mut files = lock(files());
        let (kept, users) = files.entry(id).or_insert_with(|| {
            let kept = Kept {
                id,
                process: Owner::current(),
                windows: Mutex::default(),
            };
            (Arc::new(kept), 0)
        });
        *users += 1;
        Ok(kept.clone())
    }

    /// Ends a use of the file. Returns all windows that may have pages to evict if it was the last
    /// use. They are evicted by [`Eviction::finish`].
    pub(crate) fn close(self: &Arc<Kept>) -> Option<Eviction> {
        if !self.process.is_here() {
            return None;
        }
        let mut files = lock(files());
        let (_, users) = files.get_mut(&self.id)?;
        *users -= 1;
        if *users > 0 {
            return None;
        }
        files.remove(&self.id);
        drop(files);
        let mut windows = lock(&self.windows);
        windows.idle.clear();
        let loose = windows.known.iter().filter(|(_, window)| window.loose);
        let loose = loose.map(|(index, _)| *index).collect();
        Some(self.eviction(loose))
    }

    /// Surveys the windows that a read or write of `range` may use. Returns them if it may make
    /// pages resident; [`end`](Kept::end) must be called after it.
    pub(crate) fn begin(&self, probe: &Probe<'_>, range: Range<u64>, writes: bool) -> Option<Span> {
        if range.is_empty() || !self.process.is_here() {
            return None;
        }
        let mut windows = lock(&self.windows);
        if windows.size < range.end {
            windows.size = stat::size(probe.fd).ok()?;
        }
        let (first, last) = (range.start / WINDOW, (range.end - 1) / WINDOW);
        let reach = match writes {
            true => last,
            // A read after the end of the file has no readahead.
            false => last.max((last + AHEAD).min(windows.size / WINDOW)),
        };
        let written = if writes { range.end } else { 0 };
        for index in first..=reach {
            windows.survey(probe, index, written)?;
        }
        let reads = windows.known.range(first..=last);
        if !writes && !reads.into_iter().any(|(_, window)| window.misses(&range)) {
            return None;
        }
        windows.enter(first..=reach);
        Some(first..=reach)
    }

    /// Ends the use of these windows. Returns those that are to be evicted.
    pub(crate) fn end(self: &Arc<Kept>, span: Span) -> Option<Eviction> {
        let mut windows = lock(&self.windows);
        windows.leave(span);
        let due = windows.idle.len().saturating_sub(IDLE);
        let due: Vec<u64> = (0..due)
            .filter_map(|_| windows.idle.pop_first())
            .map(|(_, index)| index)
            .collect();
        (!due.is_empty()).then(|| self.eviction(due))
    }

    fn eviction(self: &Arc<Kept>, windows: Vec<u64>) -> Eviction {
        Eviction {
            kept: self.clone(),
            windows,
        }
    }
}

impl Windows {
    /// Surveys the part of a window that lies within the file, or that is going to be written, and
    /// was not surveyed before. `None` if the kernel does not report residency.
    fn survey(&mut self, probe: &Probe<'_>, index: u64, written: u64) -> Option<()> {
        let start = index * WINDOW;
        let end = self.size.max(written).next_multiple_of(page_size());
        let end = end.min(start + WINDOW);
        let window = match self.known.entry(index) {
            Entry::Occupied(window) if window.get().surveyed >= end => return Some(()),
            Entry::Occupied(window) => window.into_mut(),
            Entry::Vacant(_) if end <= start => return Some(()),
            Entry::Vacant(free) => free.insert(Window {
                surveyed: start,
                missing: Vec::new(),
                users: 0,
                used: 0,
                loose: false,
            }),
        };
        let Ok(Answer::Known { value: map, .. }) = probe.page_map(window.surveyed..end) else {
            return None;
        };
        for run in map.runs() {
            let run_end = run.range.end.next_multiple_of(page_size());
            if !run.resident {
                window.add(window.surveyed..run_end);
            }
            window.surveyed = run_end;
        }
        // Pages after the end of the file do not exist yet.
        window.add(window.surveyed..end);
        window.surveyed = end;
        Some(())
    }

    fn enter(&mut self, span: Span) {
        self.clock += 1;
        for (index, window) in self.known.range_mut(span) {
            self.idle.remove(&(window.used, *index));
            window.used = self.clock;
            window.users += 1;
            window.loose = true;
        }
    }

    fn leave(&mut self, span: Span) {
        for (index, window) in self.known.range_mut(span) {
            // A window of the span may have been surveyed since `enter`.
            window.users = window.users.saturating_sub(1);
            if window.users == 0 && window.loose {
                self.idle.insert((window.used, *index));
            }
        }
    }

    /// The ranges of a window that are to be evicted.
    fn ranges(&self, index: u64) -> Vec<Range<u64>> {
        let Some(window) = self.known.get(&index) else {
            return Vec::new();
        };
        let mut ranges = window.missing.clone();
        // The folio at the end of the file may extend beyond it.
        if let Some(last) = ranges.last_mut()
            && last.end == window.surveyed
            && self.size <= window.surveyed
        {
            last.end = (index + 1) * WINDOW;
        }
        ranges
    }
}

impl Window {
    fn add(&mut self, missing: Range<u64>) {
        match self.missing.last_mut() {
            _ if missing.is_empty() => {}
            Some(last) if last.end == missing.start => last.end = missing.end,
            _ => self.missing.push(missing),
        }
    }

    /// Returns true if a page of the range was not resident.
    fn misses(&self, range: &Range<u64>) -> bool {
        let next = self.missing.partition_point(|run| run.end <= range.start);
        let next = self.missing.get(next);
        next.is_some_and(|run| run.start < range.end)
    }
}

impl Eviction {
    /// Evicts the windows once. Dirty pages stay, and the kernel begins to write them. Returns
    /// true if no page stayed.
    pub(crate) fn run(&self, probe: &Probe<'_>) -> bool {
        if !self.kept.process.is_here() {
            return true;
        }
        let mut clean = true;
        for &index in &self.windows {
            let (ranges, clock) = {
                let mut windows = lock(&self.kept.windows);
                windows.size = stat::size(probe.fd).unwrap_or(windows.size);
                (windows.ranges(index), windows.clock)
            };
            let gone = evict(probe, &ranges);
            clean &= gone;
            let mut windows = lock(&self.kept.windows);
            windows.clock += 1;
            let now = windows.clock;
            if let Some(window) = windows.known.get_mut(&index)
                && window.users == 0
            {
                window.loose = !gone || window.used > clock;
                window.used = now;
            }
        }
        clean
    }

    /// Evicts the windows until no page stays, for some seconds at most: the kernel may still read
    /// ahead, or write what was written.
    pub(crate) fn finish(&self, probe: &Probe<'_>) {
        let mut pause = Duration::from_millis(1);
        for _ in 0..PAUSES {
            if self.run(probe) {
                return;
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
        self.run(probe);
    }
}

impl Drop for Eviction {
    fn drop(&mut self) {
        if !self.kept.process.is_here() {
            return;
        }
        let mut windows = lock(&self.kept.windows);
        let Windows { known, idle, .. } = &mut *windows;
        for index in &self.windows {
            if let Some(window) = known.get(index).filter(|it| it.users == 0 && it.loose) {
                idle.insert((window.used, *index));
            }
        }
    }
}

/// Evicts ranges. Returns true if none of their pages is resident afterwards.
fn evict(probe: &Probe<'_>, ranges: &[Range<u64>]) -> bool {
    let mut gone = true;
    for range in ranges {
        let len = NonZeroU64::new(range.end - range.start);
        let evicted = fadvise(probe.fd, range.start, len, Advice::DontNeed);
        let left = probe.residency(range.clone()).ok().and_then(Answer::known);
        gone &= evicted.is_ok() && left.is_none_or(|left| left.cached == 0);
    }
    gone
}

fn files() -> &'static Mutex<Files> {
    match FILES.get_or_make(|| Ok::<_, Infallible>(Mutex::default())) {
        Ok(files) => files,
        Err(never) => match never {},
    }
}
