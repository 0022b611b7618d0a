//! One open file that is being read into the page cache, and the pieces that were not read yet.
//!
//! ```text
//!  requested ranges ─► windows ─► without holes ─► missing ranges ─► pieces
//! ```
//! The residency of a window is queried when half of the previous window is processed. This bounds
//! the memory for files of any size and fragmentation. A page is counted as missing before the
//! kernel reads it ahead.

use std::collections::VecDeque;
use std::ops::Range;

use nowait::Handle;
use nowait::residency::{Answer, Source, page_map, page_size, residency};
use rustix::fs::Advice;

use super::request::Request;
use crate::holes::take_window;

/// The size of a window in bytes.
const WINDOW: u64 = 256 << 20;

/// An open file and its pieces.
#[derive(Debug)]
pub struct Job {
    pub request: Request,
    pub handle: Handle,
    pub size: u64,
    /// The number of requested bytes.
    pub requested: u64,
    /// The requested ranges that were not queried yet, in order.
    unqueried: VecDeque<Range<u64>>,
    /// The end of the last queried window.
    queried_to: u64,
    pieces: VecDeque<Piece>,
    /// True if the file may have holes.
    sparse: bool,
    /// The number of reads in flight.
    pub in_flight: usize,
    /// The first piece that was read.
    pub first: Option<Range<u64>>,
    pub sums: Sums,
    /// True if the rest of the file is not read, for example after an error.
    pub abandoned: bool,
    /// True if the file became shorter meanwhile.
    pub shrank: bool,
}

/// The numbers of bytes of one file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// The bytes of the requested ranges, without holes.
    pub data: u64,
    /// The bytes in holes of the requested ranges. Holes are not read.
    pub holes: u64,
    /// The bytes that were not cached before, or whose residency was unknown.
    pub missing: u64,
    /// The bytes that were read into the page cache.
    pub read_bytes: u64,
    /// The bytes that were not read because of the budget.
    pub not_read: u64,
}

/// A range to read in one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub range: Range<u64>,
    /// The number of bytes that are not cached. The cached bytes between them are read, too.
    pub missing: u64,
}

impl Piece {
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Shortens the piece to at most `max` bytes, so that it ends at a page boundary, and returns
    /// the rest. Returns `None` if the piece is short enough, contains cached bytes, or would
    /// become empty.
    fn split(&mut self, max: u64) -> Option<Piece> {
        let at = self.range.start + max;
        let at = at - at % page_size();
        if self.missing < self.len() || at <= self.range.start || at >= self.range.end {
            return None;
        }
        let rest = at..self.range.end;
        self.range.end = at;
        self.missing = self.len();
        Some(Piece {
            missing: rest.end - rest.start,
            range: rest,
        })
    }
}

impl Job {
    /// The job for a file with this size and this number of allocated bytes.
    pub fn new(request: Request, handle: Handle, size: u64, allocated: u64) -> Job {
        let requested = request.bytes(size);
        let unqueried = match &request.selection {
            Some(selection) => selection.ranges.iter().cloned().collect(),
            None => std::iter::once(0..size).collect(),
        };
        Job {
            request,
            handle,
            size,
            requested,
            unqueried,
            queried_to: 0,
            pieces: VecDeque::new(),
            sparse: allocated < size,
            in_flight: 0,
            first: None,
            sums: Sums::default(),
            abandoned: false,
            shrank: false,
        }
    }

    /// Returns true if the whole file was requested and has no holes.
    pub fn is_all_data(&self) -> bool {
        let all = 0..self.size;
        !self.sparse && self.unqueried.iter().eq([&all])
    }

    /// Disables the kernel's readahead for the file.
    pub fn disable_readahead(&self) {
        // A filesystem may ignore the advice. There is no other way to disable readahead.
        let _ = rustix::fs::fadvise(&self.handle, 0, None, Advice::Random);
    }

    /// The next piece to read, at most `max` bytes unless parts of it are cached; `None` if no
    /// piece is left.
    ///
    /// # Errors
    /// If the residency query fails.
    pub fn next(&mut self, max: u64, largest: u64) -> nowait::Result<Option<Piece>> {
        while !self.abandoned && self.needs_window() {
            let Some(window) = self.next_window() else {
                break;
            };
            self.queried_to = window.end;
            self.query(window, largest)?;
        }
        if self.abandoned {
            return Ok(None);
        }
        let Some(mut piece) = self.pieces.pop_front() else {
            return Ok(None);
        };
        if let Some(rest) = piece.split(max) {
            self.pieces.push_front(rest);
        }
        Ok(Some(piece))
    }

    /// Puts back a piece that was not read.
    pub fn put_back(&mut self, piece: Piece) {
        self.pieces.push_front(piece);
    }

    /// Returns true if nothing is left to read and no read is in flight.
    pub fn is_done(&self) -> bool {
        let drained = self.pieces.is_empty() && self.unqueried.is_empty();
        self.in_flight == 0 && (self.abandoned || drained)
    }

    /// The number of requested bytes that are done: in holes, cached before, read, or not read because
    /// of the budget.
    pub fn done(&self) -> u64 {
        let Sums {
            data,
            holes,
            missing,
            read_bytes,
            not_read,
        } = self.sums;
        let cached = data - missing;
        (holes + cached + read_bytes + not_read).min(self.requested)
    }

    /// The number of bytes of the requested ranges that are cached now, without holes.
    pub fn cached_now(&self) -> nowait::Result<Answer<u64>> {
        let whole = 0..self.size;
        let ranges = match &self.request.selection {
            Some(selection) => &selection.ranges[..],
            None => std::slice::from_ref(&whole),
        };
        let mut cached = 0;
        let mut by = Source::Cachestat;
        for range in ranges {
            match residency(&self.handle, range.clone())? {
                Answer::Unknown(reason) => return Ok(Answer::Unknown(reason)),
                Answer::Known { value, source } => {
                    by = source;
                    cached += if value.cached == value.pages {
                        range.end.min(self.size).saturating_sub(range.start)
                    } else {
                        value.cached * page_size()
                    };
                }
            }
        }
        // Cached pages of holes, and cached pages whose read failed, do not count.
        let max = if self.abandoned {
            self.sums.data - self.sums.missing + self.sums.read_bytes
        } else {
            self.sums.data
        };
        Ok(Answer::Known {
            value: cached.min(max),
            source: by,
        })
    }

    /// Returns true if at least half of the first piece was evicted again. Fewer evicted pages are
    /// no sign of memory pressure, because the kernel may evict single pages at any time.
    pub fn was_evicted(&self) -> bool {
        let Some(first) = &self.first else {
            return false;
        };
        residency(&self.handle, first.clone())
            .is_ok_and(|answer| answer.known().is_some_and(|r| r.cached <= r.pages / 2))
    }

    /// Returns true if the next piece begins in the last half of the queried window, or there is no
    /// piece.
    fn needs_window(&self) -> bool {
        let next = self.pieces.front();
        next.is_none_or(|piece| self.queried_to - piece.range.start < WINDOW / 2)
    }

    /// The next range without holes, at most [`WINDOW`] long.
    fn next_window(&mut self) -> Option<Range<u64>> {
        while let Some(unqueried) = self.unqueried.front_mut() {
            let start = unqueried.start;
            let window = take_window(&self.handle, unqueried, self.sparse, WINDOW);
            let data = window.as_ref().map_or(unqueried.start, |it| it.start);
            self.sums.holes += data - start;
            if unqueried.is_empty() {
                self.unqueried.pop_front();
            }
            if window.is_some() {
                return window;
            }
        }
        None
    }

    /// Queries a window and makes pieces of its missing ranges.
    fn query(&mut self, window: Range<u64>, largest: u64) -> nowait::Result<()> {
        let len = window.end - window.start;
        let others = self.pieces.len();
        match page_map(&self.handle, window.clone())? {
            Answer::Known { value: map, .. } => {
                let within = map.range();
                self.sums.data += within.end - within.start;
                if within.end < window.end {
                    self.shrank = true;
                    self.unqueried.clear();
                }
                for run in map.runs().filter(|run| !run.resident) {
                    self.add(run.range, largest, others);
                }
            }
            // All of the window is treated as missing.
            Answer::Unknown(_) => {
                self.sums.data += len;
                self.add(window, largest, others);
            }
        }
        Ok(())
    }

    /// Adds a missing range. It extends the last piece if that stays at most `largest` bytes long;
    /// otherwise it becomes new pieces. The range between two missing ranges of one window is
    /// cached. The first `others` pieces belong to other windows and are not extended.
    fn add(&mut self, missing: Range<u64>, largest: u64, others: usize) {
        let len = missing.end - missing.start;
        self.sums.missing += len;
        if self.pieces.len() > others
            && let Some(last) = self.pieces.back_mut()
            && missing.end - last.range.start <= largest
        {
            last.range.end = missing.end;
            last.missing += len;
            return;
        }
        let mut start = missing.start;
        while start < missing.end {
            // The next pieces are aligned like large folios.
            let aligned = (start + largest) - (start + largest) % largest;
            let end = missing.end.min(aligned);
            self.pieces.push_back(Piece {
                range: start..end,
                missing: end - start,
            });
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(range: Range<u64>) -> Piece {
        Piece {
            missing: range.end - range.start,
            range,
        }
    }

    #[test]
    fn a_piece_is_cut_at_the_end_of_a_page() {
        let page = page_size();
        let mut first = piece(page..10 * page);
        assert_eq!(first.split(3 * page + 1), Some(piece(4 * page..10 * page)));
        assert_eq!(first, piece(page..4 * page));
        assert_eq!(first.split(page - 1), None, "a piece is never empty");
        assert_eq!(first.split(1 << 40), None);
    }
}
