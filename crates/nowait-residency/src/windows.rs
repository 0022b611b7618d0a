//! The pages of a file that were resident before this process used the file, and the eviction of
//! the others.
//!
//! ```text
//!  begin ─► survey the windows of the range and those that readahead may reach ─► the read or write
//!  end ───► more than IDLE windows that were used? ─► Eviction of those that were used least recently
//!  close ─► Eviction of all windows ─► a page stayed? ─► that page again later, by `Retry`
//! ```
//! To survey a window is to ask the kernel which of its pages are not resident, before this process uses it. A window is
//! surveyed before its first use, and again after it was evicted. Pages that were resident then are not evicted. Without
//! a survey nothing is evicted. The survey of a window
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
//! of the file that were not resident before an attempt are evicted again within five milliseconds. For a
//! second, or two if the processors are busy, [`Retry`] evicts the pages that become resident directly after pages that it
//! has evicted, or that were resident before: the kernel may have read them ahead for this process. If the evicted pages are
//! resident again, another program has read them, and the pages after them stay.
//!
//! # Surveys without a lock
//! A survey may wait for a filesystem on a network. Two threads may survey a window at the same
//! time. The survey that is stored first counts: no read of this process has begun before it. A
//! survey is not stored if a window was forgotten while it was made: another thread may have read,
//! evicted and forgotten its window meanwhile.
//!
//! # Example
//! ```
//! use nowait_residency::Probe;
//! use nowait_residency::windows::{FileWindows, Use};
//! use std::os::unix::fs::FileExt;
//! let file = std::fs::File::open("Cargo.toml")?;
//! let (probe, windows) = (Probe::new(&file)?, FileWindows::open(&file)?);
//! let mut buf = [0; 100];
//! // `None`: the read makes no page resident, or the kernel does not report residency.
//! let span = windows.begin(&probe, 0..100, Use::Read { readahead: 32 << 20 });
//! file.read_at(&mut buf, 0)?;
//! if let Some(eviction) = span.and_then(|span| windows.end(&span)) {
//!     eviction.run(&probe);
//! }
//! if let Some(eviction) = windows.close() {
//!     eviction.run(&probe);
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

mod eviction;
mod file_windows;
mod pages;
mod table;

use std::ops::Range;
use std::sync::Arc;

pub use eviction::{Eviction, Retry};
pub use file_windows::FileWindows;
pub use pages::{WINDOW, evict, missing};
pub use table::{InProgress, Span};

use crate::Probe;
use crate::sys::stat;

/// The kind of a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A read, and the greatest distance in bytes from its end to that of a readahead.
    Read {
        /// That distance.
        readahead: u64,
    },
    /// A write.
    Write,
}

impl FileWindows {
    /// Surveys the windows that one read or write of `range` may use. Returns them if it may make
    /// pages resident; [`end`](FileWindows::end) or [`abandon`](FileWindows::abandon) must be called after it.
    pub fn begin(&self, probe: &Probe<'_>, range: Range<u64>, how: Use) -> Option<Span> {
        if range.is_empty() || range.start >= i64::MAX as u64 || !self.is_here() {
            return None;
        }
        let mut windows = self.lock();
        if windows.size < range.end {
            drop(windows);
            let size = stat::size(probe.fd()).ok()?;
            windows = self.lock();
            windows.size = size;
        }
        let most = match how {
            Use::Read { .. } => windows.size.max(range.start + 1),
            // One call writes less.
            Use::Write => range.start.saturating_add(1 << 31).min(i64::MAX as u64),
        };
        let range = range.start..range.end.min(most);
        let (first, last) = (range.start / WINDOW, (range.end - 1) / WINDOW);
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
                .map(|gap| Some((missing(probe, gap.clone())?, gap)))
                .collect();
            windows = self.lock();
            for (missing, gap) in surveyed? {
                windows.add(gap, &missing, forgotten);
            }
        }
        windows.enter(first..=reach, last)
    }

    /// Ends the use of these windows. Returns those that are to be evicted.
    pub fn end(self: &Arc<FileWindows>, span: &Span) -> Option<Eviction> {
        if !self.is_here() {
            return None;
        }
        let mut windows = self.lock();
        windows.end_abandoned();
        windows.leave(span);
        let (due, closes) = (windows.take_due(), windows.closes);
        (!due.is_empty()).then(|| self.eviction(due, closes))
    }

    /// Ends the use of these windows when this operation is complete.
    pub fn abandon(&self, span: &Span, operation: InProgress) {
        if self.is_here() {
            let mut windows = self.lock();
            windows.abandoned.push((span.clone(), operation));
        }
    }

    /// Ends a use of the file. Returns all windows that may have pages to evict if it was the last
    /// use.
    pub fn close(self: &Arc<FileWindows>) -> Option<Eviction> {
        if !self.is_here() {
            return None;
        }
        let (to_evict, closes) = self.end_use()?;
        Some(self.eviction(to_evict, closes))
    }

    fn eviction(self: &Arc<FileWindows>, windows: Vec<u64>, closes: u64) -> Eviction {
        Eviction {
            file: self.clone(),
            windows,
            closes,
        }
    }
}
