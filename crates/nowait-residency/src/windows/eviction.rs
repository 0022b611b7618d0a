//! Evictions of windows, and of pages that stay.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::file_windows::FileWindows;
use super::pages::{is_evicted, is_sure};
use crate::Probe;
use crate::sys::descriptor_table::{hold, with_reopened};
use crate::sys::process::PerProcess;
use crate::sys::stat;

/// The files that are closed and have pages that could not be evicted yet. Each has a descriptor.
const MAX_PENDING: usize = 256;
/// The number of attempts to evict pages that the kernel reads or writes, or that a process has locked (mlock(2)), and
/// the pause before and after the first. Each later pause is twice the last: 8 seconds altogether.
const ATTEMPTS: u32 = 14;
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The evictions of this process that are repeated, and a notification that there is another one.
static RETRIES: PerProcess<(Mutex<Retries>, Condvar)> = PerProcess::new();

#[derive(Debug, Default)]
struct Retries {
    pending: Vec<Pending>,
    /// There is a [`Retry`].
    has_worker: bool,
}

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

/// Windows that are to be evicted. Those of which pages stayed are evicted again later, also if it
/// is dropped before it was run.
#[derive(Debug)]
pub struct Eviction {
    pub(super) file: Arc<FileWindows>,
    pub(super) windows: Vec<u64>,
    /// The number of the last close of the file. A later close makes the attempts of this one.
    pub(super) closes: u64,
}

impl Eviction {
    /// Evicts the windows that are not in use once. Dirty pages stay, and the kernel begins to write
    /// them. Returns true if no page stayed, and no window is in use.
    pub fn run(&self, probe: &Probe<'_>) -> bool {
        if !self.file.is_here() {
            return true;
        }
        let size = stat::size(probe.fd());
        let (unused, in_use, ranges, clock) = {
            let mut windows = self.file.lock();
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
            if !is_evicted(probe, range) {
                stayed.extend(of);
            }
        }
        let forgets = is_sure(probe);
        self.file.lock().evicted(&unused, &stayed, clock, forgets);
        stayed.is_empty() && in_use.is_empty()
    }

    /// The same in a thread whose descriptors have no effect on locks of the program. `held` is a
    /// descriptor of O_PATH.
    pub fn run_elsewhere(self: Arc<Self>, held: &OwnedFd) -> bool {
        let run = move |fd: &OwnedFd| Probe::new(fd).is_ok_and(|probe| self.run(&probe));
        with_reopened(held.as_fd(), run).unwrap_or(false)
    }

    /// Evicts what is left of the windows of a closed file that are not in use. Returns true if no window is in use,
    /// no page stayed, and none may be being read, or if a later close makes the attempts.
    fn attempt(&self, probe: &Probe<'_>) -> bool {
        if !self.file.is_here() {
            return true;
        }
        let size = stat::size(probe.fd());
        let (size, windows, unused) = {
            let mut windows = self.file.lock();
            if windows.closes != self.closes {
                return true;
            }
            windows.size = size.unwrap_or(windows.size);
            windows.end_abandoned();
            let (taken, unused) = windows.take_left(&self.windows);
            (windows.size, taken, unused)
        };
        let mut is_clean = unused;
        for (index, left) in windows {
            let left = left.evict(probe, size);
            is_clean &= left.is_empty();
            let mut windows = self.file.lock();
            // A survey that was made meanwhile may have seen pages that are evicted now.
            windows.forgotten += 1;
            if windows.closes != self.closes {
                return true;
            }
            if windows.known.contains_key(&index) || left.is_empty() {
                windows.left.remove(&index);
            } else {
                windows.left.insert(index, left);
            }
        }
        is_clean
    }

    /// Ends the attempts.
    fn give_up(&self) {
        self.file.give_up(&self.windows, self.closes);
    }

    /// Returns true if it evicts at most one window.
    pub fn is_small(&self) -> bool {
        self.windows.len() <= 1
    }

    /// Evicts the windows of a closed file for the first time. Pages that stay are evicted again
    /// later. If this returns something, a worker has to run it.
    #[must_use]
    pub fn run_or_defer(self, probe: &Probe<'_>) -> Option<Retry> {
        if self.attempt(probe) {
            self.give_up();
            return None;
        }
        self.defer(probe)
    }

    /// Leaves the eviction of a closed file to a worker. If this returns something, a worker has to
    /// run it.
    #[must_use]
    pub fn defer(self, probe: &Probe<'_>) -> Option<Retry> {
        let held = hold(probe.fd());
        let (mut retries, news) = retries();
        let is_same = |it: &Pending| Arc::ptr_eq(&it.eviction.file, &self.file);
        if let Some(at) = retries.pending.iter().position(is_same) {
            // The last close makes the attempts, in whatever order the threads of two closes come here.
            if retries.pending[at].eviction.closes > self.closes {
                return None;
            }
            retries.pending.swap_remove(at);
        }
        let (Ok(held), true) = (held, retries.pending.len() < MAX_PENDING) else {
            drop(retries);
            self.give_up();
            return None;
        };
        retries.pending.push(Pending {
            held,
            eviction: Arc::new(self),
            attempts: 0,
            next: Instant::now() + FIRST_PAUSE,
        });
        news.notify_one();
        (!std::mem::replace(&mut retries.has_worker, true)).then(|| Retry(()))
    }
}

impl Drop for Eviction {
    fn drop(&mut self) {
        if !self.file.is_here() {
            return;
        }
        self.file.lock().stay(&self.windows);
    }
}

/// The evictions of closed files that are repeated. There is at most one in a process. If it is
/// dropped before it was run, the next file that has pages to evict returns another.
#[derive(Debug)]
pub struct Retry(());

impl Retry {
    /// Evicts the pages of closed files until none stays, for some seconds at most: the kernel may
    /// still read ahead, or write what was written.
    pub fn run(self) {
        let (mut all, news) = retries();
        while let Some(next) = all.pending.iter().map(|it| it.next).min() {
            let now = Instant::now();
            if now < next {
                let waited = news.wait_timeout(all, next - now);
                all = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let due = all.pending.extract_if(.., |it| it.next <= now);
            let due: Vec<Pending> = due.collect();
            drop(all);
            let left: Vec<Pending> = due.into_iter().filter_map(Pending::attempt).collect();
            all = retries().0;
            all.pending.extend(left);
        }
        // From now on there may be another.
        all.has_worker = false;
        std::mem::forget(self);
    }
}

impl Drop for Retry {
    fn drop(&mut self) {
        retries().0.has_worker = false;
    }
}

/// Locks the evictions that are repeated.
fn retries() -> (MutexGuard<'static, Retries>, &'static Condvar) {
    let make = || Ok::<_, Infallible>((Mutex::default(), Condvar::new()));
    let Ok((retries, news)) = RETRIES.get_or_make(make);
    // A panic leaves the list consistent.
    let retries = retries.lock().unwrap_or_else(PoisonError::into_inner);
    (retries, news)
}

impl Pending {
    /// Evicts once. Returns `None` if it was the last attempt, or no page can stay.
    fn attempt(mut self) -> Option<Pending> {
        let eviction = self.eviction.clone();
        let attempt = move |fd: &OwnedFd| Probe::new(fd).is_ok_and(|it| eviction.attempt(&it));
        let is_clean = with_reopened(self.held.as_fd(), attempt).unwrap_or(false);
        self.attempts += 1;
        if self.attempts == ATTEMPTS || is_clean {
            self.eviction.give_up();
            return None;
        }
        self.next = Instant::now() + FIRST_PAUSE * (1 << (self.attempts - 1));
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Use;
    use super::*;

    /// The tests share the list of the process.
    static ALONE: Mutex<()> = Mutex::new(());

    /// An eviction of a file that was closed.
    fn eviction(file: &std::fs::File) -> (Probe<'_>, Eviction) {
        let probe = Probe::new(file).unwrap();
        let windows = FileWindows::open(file).unwrap();
        let span = windows.begin(&probe, 0..1000, Use::Write).unwrap();
        assert!(windows.end(&span).is_none());
        let eviction = windows.close().expect("one window");
        (probe, eviction)
    }

    #[test]
    #[cfg_attr(miri, ignore = "cachestat and mincore")]
    fn a_retry_that_is_not_run_is_returned_again_and_has_each_file_once() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let files = [(); 3].map(|()| tempfile::tempfile_in(".").unwrap());
        let defer = |file| {
            let (probe, eviction) = eviction(file);
            eviction.defer(&probe)
        };
        let first = defer(&files[0]);
        assert!(first.is_some());
        assert!(defer(&files[1]).is_none());
        drop(first);
        let again = defer(&files[2]).expect("another");
        assert!(defer(&files[2]).is_none());
        assert_eq!(retries().0.pending.len(), files.len());
        again.run();
        assert!(retries().0.pending.is_empty());
    }

    /// Two threads close a file, one after the other, and then come here in either order.
    #[test]
    #[cfg_attr(miri, ignore = "cachestat and mincore")]
    fn the_last_close_makes_the_attempts() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        for first in [0, 1] {
            let file = tempfile::tempfile_in(".").unwrap();
            let mut closes = [(); 2].map(|()| Some(eviction(&file)));
            let mut defer = |which: usize| {
                let (probe, eviction): (Probe<'_>, Eviction) = closes[which].take().unwrap();
                drop(eviction.defer(&probe));
            };
            defer(first);
            defer(1 - first);
            let pending = std::mem::take(&mut retries().0.pending);
            let closes: Vec<u64> = pending.iter().map(|it| it.eviction.closes).collect();
            assert_eq!(closes, [2], "{first}");
            pending.iter().for_each(|it| it.eviction.give_up());
        }
    }
}
