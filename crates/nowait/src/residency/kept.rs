//! The pages of a file that were resident before this process used the file, and the eviction of
//! the others.
//!
//! ```text
//!  begin ─► survey the windows of the range and those that readahead may reach ─► the read or write
//!  end ───► more than IDLE windows that were used? ─► Eviction of those that were used least recently
//!  close ─► Eviction of all windows ─► a page stayed? ─► that page again later, by `retry_evictions`
//! ```
//! A window is surveyed before its first use, and again after it was evicted. Pages that were
//! resident then are not evicted. Without a survey nothing is evicted. The survey of a window
//! without pages to evict is used for a second at most: other programs cache and evict pages, too.
//!
//! A window is not evicted while a read or write of it is in progress: pages that arrive later
//! would stay. If a future is dropped, its read or write is in progress until the engine has
//! completed it. Large folios need no care: readahead adds them only where no page is resident, they
//! are aligned to their size, and a window is aligned to more than that.
//!
//! # Pages that stay
//! The kernel does not evict a page that it reads or writes, or that a process has locked. After a file
//! is closed, only such pages are evicted later, for eight seconds at most: a page that was evicted once
//! may have been cached by another program since. It is asked which pages stayed right after each
//! attempt, so a page that another program has cached between the two calls counts as one that stayed.
//! mincore(2), unlike cachestat(2), does not report a page that is being read. With mincore(2) the pages
//! that were not resident before an attempt are evicted once more, a millisecond later.
//!
//! # Surveys without a lock
//! A survey may wait for a filesystem on a network. Two threads may survey a window at the same
//! time. The survey that is stored first counts: no read of this process has begun before it. A
//! survey is not stored if a window was forgotten while it was made: another thread may have read,
//! evicted and forgotten its window meanwhile.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::num::NonZeroU64;
use std::ops::{Range, RangeInclusive};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, AtFlags, StatxFlags, fadvise, makedev, statx};

use super::{Answer, Probe, Source, page_size};
use crate::sys::Errno;
use crate::sys::descriptor_table::{hold, with_reopened};
use crate::sys::process::{Owner, PerProcess};
use crate::sys::stat;
use crate::sys::sync::{Condvar, Mutex, lock, wait_timeout};

/// The bytes that are evicted at once. Smaller windows read more from the device, because a window
/// that is evicted too early is read again.
pub(crate) const WINDOW: u64 = 8 << 20;
/// The windows of a file that were used, are unused now, and are not yet evicted.
const IDLE: usize = 8;
/// The files that are closed and have pages that could not be evicted yet. Each has a descriptor.
const MAX_PENDING: usize = 256;
/// The number of attempts to evict pages that the kernel reads, writes or has locked, and the pause
/// before and after the first. Each later pause is twice the last: 8 seconds altogether.
const ATTEMPTS: u32 = 14;
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The time for which the survey of a window without pages to evict is used.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The files of this process whose pages are kept, and a notification that another one is pending.
static FILES: PerProcess<(Mutex<Files>, Condvar)> = PerProcess::new();

#[derive(Debug, Default)]
struct Files {
    /// Each file with the number of its users. A file without users has pages to evict.
    known: HashMap<Id, (Arc<Kept>, usize)>,
    pending: Vec<Pending>,
    /// A worker runs [`retry_evictions`].
    has_worker: bool,
}

/// A file: device, inode number, and the time of its creation, since inode numbers are used again.
type Id = (u64, u64, i64, u32);

/// An eviction that is repeated until no page stays.
#[derive(Debug)]
struct Pending {
    /// A descriptor of O_PATH.
    held: OwnedFd,
    eviction: Arc<Eviction>,
    attempts: u32,
    /// The time of the next attempt.
    next: Instant,
}

/// The windows of one file. All open files of one inode share it: the pages that one has read are
/// not resident before the read of another.
#[derive(Debug)]
pub(crate) struct Kept {
    id: Id,
    process: Owner,
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    /// The size of the file when it was last queried.
    size: u64,
    known: BTreeMap<u64, Window>,
    /// The windows that may have pages to evict and are not in use, with the time of their last
    /// use. Windows of which pages stayed when they were evicted are in `stuck` instead.
    idle: BTreeSet<(u64, u64)>,
    stuck: BTreeSet<u64>,
    /// The number of windows in `idle` that were read or written, and not only reached by
    /// readahead.
    used_idle: usize,
    /// The number of uses so far.
    clock: u64,
    /// The uses by operations whose futures were dropped.
    abandoned: Vec<(Span, InEngine)>,
    /// The number of windows that were forgotten so far.
    forgotten: u64,
    /// The pages of windows of a closed file that are to be evicted again. These windows are not
    /// known.
    left: BTreeMap<u64, Left>,
}

/// The pages of a window that are to be evicted again, in order.
#[derive(Clone, Debug, Default)]
struct Left {
    /// The ranges that were resident after the last attempt.
    stayed: Vec<Range<u64>>,
    /// The ranges that mincore(2) has not reported, which may be being read.
    unseen: Vec<Range<u64>>,
}

#[derive(Debug, Default)]
struct Window {
    /// The end of the surveyed part.
    surveyed: u64,
    /// The ranges that were not resident, in order.
    missing: Vec<Range<u64>>,
    /// Reads and writes in progress.
    users: u32,
    /// The time of the last use.
    last_use: u64,
    /// True if it was read or written since it was surveyed, and not only reached by readahead.
    used: bool,
    /// True if pages of the missing ranges may be resident.
    loose: bool,
    /// The time at which the survey of a window that is not loose is too old.
    expires: Option<Instant>,
}

/// An operation of an engine. It can be upgraded until the engine has completed the operation.
pub(crate) type InEngine = Weak<dyn Any + Send + Sync>;

/// The windows that a read or write uses.
#[derive(Clone, Debug)]
pub(crate) struct Span(RangeInclusive<u64>);

/// The kind of a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A read, and the greatest distance in bytes from its end to that of a readahead.
    Read {
        readahead: u64,
    },
    Write,
}

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
    /// The errors of statx(2).
    pub(crate) fn open(fd: impl AsFd) -> Result<Arc<Kept>, Errno> {
        let fields = StatxFlags::INO | StatxFlags::BTIME;
        let stat = statx(fd, c"", AtFlags::EMPTY_PATH, fields)?;
        let created = stat.stx_btime;
        let id = (
            makedev(stat.stx_dev_major, stat.stx_dev_minor),
            stat.stx_ino,
            created.tv_sec,
            created.tv_nsec,
        );
        let mut files = lock(&files().0);
        let (kept, users) = files.known.entry(id).or_insert_with(|| {
            let kept = Kept {
                id,
                process: Owner::current(),
                windows: Mutex::default(),
            };
            (Arc::new(kept), 0)
        });
        if *users == 0 {
            lock(&kept.windows).forget_evicted();
        }
        *users += 1;
        Ok(kept.clone())
    }

    /// Ends a use of the file. Returns all windows that may have pages to evict if it was the last
    /// use.
    pub(crate) fn close(self: &Arc<Kept>) -> Option<Eviction> {
        if !self.process.is_here() {
            return None;
        }
        let mut files = lock(&files().0);
        let (_, users) = files.known.get_mut(&self.id)?;
        *users -= 1;
        if *users > 0 {
            return None;
        }
        let loose = lock(&self.windows).take_all();
        if loose.is_empty() {
            files.known.remove(&self.id);
            return None;
        }
        Some(self.eviction(loose))
    }

    /// Ends the attempts to evict pages of these windows. Forgets the file if it has no users.
    fn give_up(&self, indices: &[u64]) {
        let mut windows = lock(&self.windows);
        for index in indices {
            if let Some(left) = windows.left.get_mut(index) {
                left.unseen.clear();
            }
        }
        windows.left.retain(|_, left| !left.stayed.is_empty());
        drop(windows);
        let mut files = lock(&files().0);
        if files
            .known
            .get(&self.id)
            .is_some_and(|(_, users)| *users == 0)
        {
            files.known.remove(&self.id);
        }
    }

    /// Surveys the windows that a read or write of `range` may use. Returns them if it may make
    /// pages resident; [`end`](Kept::end) or [`abandon`](Kept::abandon) must be called after it.
    pub(crate) fn begin(&self, probe: &Probe<'_>, range: Range<u64>, how: Use) -> Option<Span> {
        if range.is_empty() || !self.process.is_here() {
            return None;
        }
        let (first, last) = (range.start / WINDOW, (range.end - 1) / WINDOW);
        let mut windows = lock(&self.windows);
        if windows.size < range.end {
            drop(windows);
            let size = stat::size(probe.fd).ok()?;
            windows = lock(&self.windows);
            windows.size = size;
        }
        let reach = match how {
            Use::Write => last,
            // A read after the end of the file has no readahead.
            Use::Read { readahead } => {
                let reached = range.end.saturating_add(readahead).min(windows.size);
                last.max(reached / WINDOW)
            }
        };
        let written = if how == Use::Write { range.end } else { 0 };
        windows.end_abandoned();
        windows.forget_expired(first..=reach);
        loop {
            let gaps = windows.gaps(first..=reach, written);
            if gaps.is_empty() {
                break;
            }
            let forgotten = windows.forgotten;
            drop(windows);
            let surveyed: Option<Vec<_>> = gaps
                .into_iter()
                .map(|gap| Some((survey(probe, gap.clone())?, gap)))
                .collect();
            windows = lock(&self.windows);
            for (missing, gap) in surveyed? {
                windows.add(gap, missing, forgotten);
            }
        }
        windows.enter(first..=reach, last)
    }

    /// Ends the use of these windows. Returns those that are to be evicted.
    pub(crate) fn end(self: &Arc<Kept>, span: &Span) -> Option<Eviction> {
        if !self.process.is_here() {
            return None;
        }
        let mut windows = lock(&self.windows);
        windows.end_abandoned();
        windows.leave(span);
        let due = windows.take_due();
        (!due.is_empty()).then(|| self.eviction(due))
    }

    /// Ends the use of these windows when this operation is complete.
    pub(crate) fn abandon(&self, span: &Span, operation: InEngine) {
        if self.process.is_here() {
            let mut windows = lock(&self.windows);
            windows.abandoned.push((span.clone(), operation));
        }
    }

    fn eviction(self: &Arc<Kept>, windows: Vec<u64>) -> Eviction {
        Eviction {
            kept: self.clone(),
            windows,
        }
    }
}

/// The ranges of `range` that are not resident. `None` if the kernel does not report residency.
fn survey(probe: &Probe<'_>, range: Range<u64>) -> Option<Vec<Range<u64>>> {
    let Ok(Answer::Known { value: map, .. }) = probe.page_map(range.clone()) else {
        return None;
    };
    let mut missing = Vec::new();
    let mut surveyed = range.start;
    for run in map.runs() {
        let end = run.range.end.next_multiple_of(page_size()).min(range.end);
        if !run.resident {
            push(&mut missing, surveyed..end);
        }
        surveyed = end;
    }
    // Pages after the end of the file do not exist yet.
    push(&mut missing, surveyed..range.end);
    Some(missing)
}

/// Adds a range after others.
fn push(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

impl Windows {
    /// The parts of these windows that lie within the file, or that are going to be written up to
    /// `written`, and were not surveyed.
    fn gaps(&self, span: RangeInclusive<u64>, written: u64) -> Vec<Range<u64>> {
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
    fn add(&mut self, gap: Range<u64>, missing: Vec<Range<u64>>, forgotten: u64) {
        if self.forgotten != forgotten {
            return;
        }
        let index = gap.start / WINDOW;
        let window = self.known.entry(index).or_insert_with(|| Window {
            surveyed: index * WINDOW,
            ..Window::default()
        });
        if window.surveyed == gap.start {
            // Pages that were left when the file was closed were not resident before.
            let left = self.left.get(&index).map_or(&[][..], |left| &left.stayed);
            for range in joined(missing, left, &gap) {
                push(&mut window.missing, range);
            }
            window.surveyed = gap.end;
            window
                .expires
                .get_or_insert_with(|| Instant::now() + MAX_AGE);
        }
    }

    /// Begins a use of the windows that the file has. Returns `None` if all their pages were
    /// resident: then no page becomes resident.
    fn enter(&mut self, span: RangeInclusive<u64>, last: u64) -> Option<Span> {
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
            window.users += 1;
            window.used |= *index <= last;
            window.loose = !window.missing.is_empty();
        }
        Some(Span(windows))
    }

    /// Ends the uses by operations that are complete.
    fn end_abandoned(&mut self) {
        let ended = |(_, operation): &mut (Span, InEngine)| operation.strong_count() == 0;
        let ended: Vec<_> = self.abandoned.extract_if(.., ended).collect();
        for (span, _) in ended {
            self.leave(&span);
        }
    }

    /// Forgets the windows without pages to evict whose surveys are too old.
    fn forget_expired(&mut self, span: RangeInclusive<u64>) {
        let is_idle = |it: &Window| !it.loose && it.users == 0;
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

    fn leave(&mut self, span: &Span) {
        for index in span.0.clone() {
            let Some(window) = self.known.get_mut(&index) else {
                continue;
            };
            window.users -= 1;
            if window.users == 0 && window.loose {
                self.idle.insert((window.last_use, index));
                self.used_idle += usize::from(window.used);
            }
        }
    }

    /// Takes a window out of the sets of those that are to be evicted.
    fn set_busy(&mut self, index: u64) {
        let Some(window) = self.known.get(&index) else {
            return;
        };
        if self.idle.remove(&(window.last_use, index)) {
            self.used_idle -= usize::from(window.used);
        }
        self.stuck.remove(&index);
    }

    /// Takes the windows that are to be evicted, if there are more than [`IDLE`]: those that were
    /// used least recently, and one of those of which pages stayed.
    fn take_due(&mut self) -> Vec<u64> {
        let mut due = Vec::new();
        while self.used_idle > IDLE
            && let Some((_, index)) = self.idle.pop_first()
        {
            let used = self.known.get(&index).is_some_and(|it| it.used);
            self.used_idle -= usize::from(used);
            due.push(index);
        }
        if !due.is_empty() {
            due.extend(self.stuck.pop_first());
            due.sort_unstable();
            due.dedup();
        }
        due
    }

    /// Forgets the windows that have no pages to evict. Other programs may have read the file since
    /// it was closed, so these are surveyed again.
    fn forget_evicted(&mut self) {
        self.known
            .retain(|_, window| window.loose || window.users > 0);
        self.forgotten += 1;
    }

    /// Takes all windows that may have pages to evict.
    fn take_all(&mut self) -> Vec<u64> {
        self.end_abandoned();
        self.idle.clear();
        self.stuck.clear();
        self.used_idle = 0;
        let loose = self.known.iter().filter(|(_, window)| window.loose);
        let loose = loose.map(|(index, _)| *index);
        let all: BTreeSet<u64> = loose.chain(self.left.keys().copied()).collect();
        all.into_iter().collect()
    }

    /// The ranges of each of these windows that are to be evicted after the file was closed, and false
    /// if some windows are in use. The windows are surveyed again at their next use.
    fn take_left(&mut self, indices: &[u64]) -> (Vec<(u64, Left)>, bool) {
        let mut all = Vec::new();
        let mut unused = true;
        for index in indices {
            let Some(window) = self.known.get(index) else {
                let left = self.left.get(index);
                all.extend(left.map(|left| (*index, left.clone())));
                continue;
            };
            if window.users > 0 {
                unused = false;
                continue;
            }
            let ranges = self.ranges(&[*index]);
            let stayed = ranges.into_iter().map(|(range, _)| range).collect();
            let unseen = Vec::new();
            let left = Left { stayed, unseen };
            self.set_busy(*index);
            self.known.remove(index);
            self.forgotten += 1;
            self.left.insert(*index, left.clone());
            all.push((*index, left));
        }
        (all, unused)
    }

    /// The ranges of windows that are to be evicted, joined if they are adjacent, with the windows
    /// of each.
    fn ranges(&self, indices: &[u64]) -> Vec<(Range<u64>, Vec<u64>)> {
        let mut all: Vec<(Range<u64>, Vec<u64>)> = Vec::new();
        for index in indices {
            let Some(window) = self.known.get(index) else {
                continue;
            };
            for range in &window.missing {
                let mut range = range.clone();
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

    /// Stores the result of an eviction of windows that were not in use at the time `clock`.
    /// Windows without pages are surveyed again at their next use: at once if `forgets`, otherwise
    /// after some time.
    fn evicted(&mut self, indices: &[u64], stayed: &BTreeSet<u64>, clock: u64, forgets: bool) {
        for index in indices {
            let used_since = |it: &Window| it.users > 0 || it.last_use > clock;
            if self.known.get(index).is_none_or(used_since) {
                continue;
            }
            self.set_busy(*index);
            if stayed.contains(index) {
                self.stuck.insert(*index);
            } else if forgets {
                self.known.remove(index);
                self.forgotten += 1;
            } else if let Some(window) = self.known.get_mut(index) {
                (window.loose, window.used) = (false, false);
                window.expires = Some(Instant::now() + MAX_AGE);
            }
        }
    }
}

impl Eviction {
    /// Evicts the windows that are not in use once. Dirty pages stay, and the kernel begins to write
    /// them. Returns true if no page stayed, and no window is in use.
    pub(crate) fn run(&self, probe: &Probe<'_>) -> bool {
        if !self.kept.process.is_here() {
            return true;
        }
        let size = stat::size(probe.fd);
        let (unused, in_use, ranges, clock) = {
            let mut windows = lock(&self.kept.windows);
            windows.size = size.unwrap_or(windows.size);
            windows.end_abandoned();
            let mut known = self.windows.clone();
            known.retain(|index| windows.known.contains_key(index));
            let is_unused = |index: &u64| windows.known.get(index).is_some_and(|it| it.users == 0);
            let (unused, in_use): (Vec<u64>, Vec<u64>) = known.into_iter().partition(is_unused);
            let ranges = windows.ranges(&unused);
            (unused, in_use, ranges, windows.clock)
        };
        let mut stayed = BTreeSet::new();
        for (range, of) in ranges {
            if !evict(probe, range) {
                stayed.extend(of);
            }
        }
        let forgets = is_sure(probe);
        lock(&self.kept.windows).evicted(&unused, &stayed, clock, forgets);
        stayed.is_empty() && in_use.is_empty()
    }

    /// The same in a thread whose descriptors have no effect on locks of the program. `held` is a
    /// descriptor of O_PATH.
    pub(crate) fn run_elsewhere(self: Arc<Self>, held: &OwnedFd) -> bool {
        let run = move |fd: &OwnedFd| Probe::new(fd).is_ok_and(|probe| self.run(&probe));
        with_reopened(held.as_fd(), run).unwrap_or(false)
    }

    /// Evicts what is left of the windows of a closed file that are not in use. Returns true if no page
    /// stayed, and no window is in use.
    fn attempt(&self, probe: &Probe<'_>) -> bool {
        if !self.kept.process.is_here() {
            return true;
        }
        let size = stat::size(probe.fd);
        let (windows, unused) = {
            let mut windows = lock(&self.kept.windows);
            windows.size = size.unwrap_or(windows.size);
            windows.end_abandoned();
            windows.take_left(&self.windows)
        };
        let mut is_clean = unused;
        for (index, left) in windows {
            let left = left.evict(probe);
            is_clean &= left.stayed.is_empty();
            let mut windows = lock(&self.kept.windows);
            // A survey that was made meanwhile may have seen pages that are evicted now.
            windows.forgotten += 1;
            if windows.known.contains_key(&index) || left.is_empty() {
                windows.left.remove(&index);
            } else {
                windows.left.insert(index, left);
            }
        }
        is_clean
    }

    /// Returns true if it evicts at most one window.
    pub(crate) fn is_small(&self) -> bool {
        self.windows.len() <= 1
    }

    /// Evicts the windows of a closed file for the first time. Leaves pages that stay to
    /// [`retry_evictions`]. If this returns true, a worker has to run it.
    #[must_use]
    pub(crate) fn run_or_defer(self, probe: &Probe<'_>) -> bool {
        if self.attempt(probe) && is_sure(probe) {
            self.kept.give_up(&self.windows);
            return false;
        }
        self.defer(probe)
    }

    /// Leaves the eviction of a closed file to [`retry_evictions`]. If this returns true, a worker
    /// has to run it.
    #[must_use]
    pub(crate) fn defer(self, probe: &Probe<'_>) -> bool {
        let held = hold(probe.fd);
        let (files, news) = files();
        let mut files = lock(files);
        let (Ok(held), true) = (held, files.pending.len() < MAX_PENDING) else {
            drop(files);
            self.kept.give_up(&self.windows);
            return false;
        };
        files.pending.push(Pending {
            held,
            eviction: Arc::new(self),
            attempts: 0,
            next: Instant::now() + FIRST_PAUSE,
        });
        news.notify_one();
        !std::mem::replace(&mut files.has_worker, true)
    }
}

/// Notes that no worker runs [`retry_evictions`] after all.
pub(crate) fn stop_retrying() {
    lock(&files().0).has_worker = false;
}

/// Evicts the pages of closed files until none stays, for some seconds at most: the kernel may
/// still read ahead, or write what was written.
pub(crate) fn retry_evictions() {
    let (mutex, news) = files();
    let mut files = lock(mutex);
    while let Some(next) = files.pending.iter().map(|it| it.next).min() {
        let now = Instant::now();
        if now < next {
            files = wait_timeout(news, mutex, files, next - now).0;
            continue;
        }
        let due = files.pending.extract_if(.., |it| it.next <= now);
        let due: Vec<Pending> = due.collect();
        drop(files);
        let left: Vec<Pending> = due.into_iter().filter_map(Pending::attempt).collect();
        files = lock(mutex);
        files.pending.extend(left);
    }
    files.has_worker = false;
}

impl Pending {
    /// Evicts once. Returns `None` if it was the last attempt, or no page can stay.
    fn attempt(mut self) -> Option<Pending> {
        let eviction = self.eviction.clone();
        let attempt = move |fd: &OwnedFd| Probe::new(fd).is_ok_and(|it| eviction.attempt(&it));
        let is_clean = with_reopened(self.held.as_fd(), attempt).unwrap_or(false);
        self.attempts += 1;
        if self.attempts == ATTEMPTS || is_clean {
            self.eviction.kept.give_up(&self.eviction.windows);
            return None;
        }
        self.next = Instant::now() + FIRST_PAUSE * (1 << (self.attempts - 1));
        Some(self)
    }
}

impl Drop for Eviction {
    fn drop(&mut self) {
        if !self.kept.process.is_here() {
            return;
        }
        let mut windows = lock(&self.kept.windows);
        let Windows {
            known, idle, stuck, ..
        } = &mut *windows;
        stuck.extend(self.windows.iter().filter(|index| {
            let is_left =
                |it: &Window| it.users == 0 && it.loose && !idle.contains(&(it.last_use, **index));
            known.get(index).is_some_and(is_left)
        }));
    }
}

impl Left {
    fn is_empty(&self) -> bool {
        self.stayed.is_empty() && self.unseen.is_empty()
    }

    /// Evicts the pages. Returns those that are to be evicted again.
    fn evict(self, probe: &Probe<'_>) -> Left {
        let mut left = Left::default();
        for range in joined(self.stayed, &self.unseen, &(0..u64::MAX)) {
            if is_sure(probe) {
                if !evict(probe, range.clone()) {
                    push_resident(&mut left.stayed, probe, range);
                }
                continue;
            }
            // The pages that were resident are not being read.
            let before = resident(probe, range.clone());
            if !evict(probe, range.clone()) {
                for run in resident(probe, range.clone()) {
                    push(&mut left.stayed, run);
                }
            }
            let mut at = range.start;
            for run in before {
                push(&mut left.unseen, at..run.start);
                at = run.end;
            }
            push(&mut left.unseen, at..range.end);
        }
        left
    }
}

/// The resident ranges of a range, in order.
fn resident(probe: &Probe<'_>, range: Range<u64>) -> Vec<Range<u64>> {
    let map = probe.page_map(range).ok().and_then(Answer::known);
    let runs = map.into_iter().flat_map(|map| {
        let resident: Vec<_> = map.resident().collect();
        resident
    });
    runs.collect()
}

/// Adds the resident pages of a range after others. The counts of cachestat(2) have the pages that are
/// being read, and page maps may not.
fn push_resident(ranges: &mut Vec<Range<u64>>, probe: &Probe<'_>, range: Range<u64>) {
    let Some(count) = probe.residency(range.clone()).ok().and_then(Answer::known) else {
        return push(ranges, range);
    };
    let middle = (range.start + range.end).div_euclid(2) / page_size() * page_size();
    if count.cached == 0 {
    } else if count.cached >= count.pages || middle <= range.start {
        push(ranges, range);
    } else {
        push_resident(ranges, probe, range.start..middle);
        push_resident(ranges, probe, middle..range.end);
    }
}

/// The union of ranges and others, as far as these lie in `within`, in order.
fn joined(ranges: Vec<Range<u64>>, others: &[Range<u64>], within: &Range<u64>) -> Vec<Range<u64>> {
    let others = others.iter().map(|range| {
        let start = range.start.max(within.start);
        start..range.end.min(within.end)
    });
    let others = others.filter(|range| range.start < range.end);
    let mut all: Vec<Range<u64>> = ranges.into_iter().chain(others).collect();
    all.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in all {
        match joined.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// Returns true if no page can arrive after an eviction that left none. mincore(2) does not report
/// pages that are being read.
fn is_sure(probe: &Probe<'_>) -> bool {
    probe.source() == Ok(Source::Cachestat)
}

/// Evicts a range. Returns true if none of its pages is resident afterwards.
fn evict(probe: &Probe<'_>, range: Range<u64>) -> bool {
    let len = NonZeroU64::new(range.end - range.start);
    let evicted = fadvise(probe.fd, range.start, len, Advice::DontNeed);
    let left = probe.residency(range).ok().and_then(Answer::known);
    evicted.is_ok() && left.is_none_or(|left| left.cached == 0)
}

fn files() -> &'static (Mutex<Files>, Condvar) {
    match FILES.get_or_make(|| Ok::<_, Infallible>((Mutex::default(), Condvar::new()))) {
        Ok(files) => files,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

        windows.add(gap.clone(), vec![gap.clone()], windows.forgotten);
        let span = windows.enter(0..=0, 0).unwrap();
        windows.leave(&span);
        windows.evicted(&[0], &BTreeSet::new(), windows.clock, true);

        // All pages were resident.
        windows.add(gap.clone(), Vec::new(), forgotten);
        assert_eq!(windows.gaps(0..=0, 0), [gap]);
    }

    #[test]
    fn windows_are_in_use_until_the_operation_of_a_dropped_future_is_complete() {
        let mut windows = Windows {
            size: WINDOW,
            ..Windows::default()
        };
        let gap = 0..WINDOW;
        windows.add(gap.clone(), vec![gap], 0);
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
