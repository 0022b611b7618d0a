//! One open file that is being brought into the page cache: which pieces of it are still to be
//! read.
//!
//! ```text
//!  wanted ranges ─► windows ─► without holes ─► what is not cached ─► pieces
//! ```
//! A window is looked at when half of the one before is gone: so a file of any size and any
//! fragmentation takes little memory, and what the kernel has read ahead was counted as missing
//! before it came.

use std::collections::VecDeque;
use std::ops::Range;

use nowait::Handle;
use nowait::residency::{Answer, Source, page_map, page_size, residency};
use rustix::fs::{Advice, SeekFrom};
use rustix::io::Errno;

use super::wish::Wish;

/// How much of a file is asked about at once.
const WINDOW: u64 = 256 << 20;

/// A file whose pieces are on their way.
#[derive(Debug)]
pub struct Job {
    pub wish: Wish,
    pub handle: Handle,
    pub size: u64,
    /// What nobody has looked at yet, in order.
    wanted: VecDeque<Range<u64>>,
    /// Where what was looked at ends.
    looked: u64,
    pieces: VecDeque<Piece>,
    /// Whether it may have holes.
    sparse: bool,
    /// Reads that the engine has.
    pub in_flight: usize,
    /// The first piece that was read.
    pub first: Option<Range<u64>>,
    pub sums: Sums,
    /// It is given up: what is left of it is not read.
    pub over: bool,
    /// It has become shorter meanwhile.
    pub shrank: bool,
}

/// What is known of one file's bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// Of the ranges that were asked for, without holes.
    pub data: u64,
    /// In holes: there is nothing to be read.
    pub holes: u64,
    /// Not cached before, or nobody knows.
    pub missing: u64,
    /// Read into the page cache.
    pub brought: u64,
    /// Beyond the budget.
    pub left_out: u64,
}

/// A range to read in one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub range: Range<u64>,
    /// Bytes of it that are not cached. The others lie in between, and cost a copy.
    pub missing: u64,
}

impl Piece {
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Cuts off what is beyond the first `most` bytes, at the end of a page. A piece with cached
    /// parts stays whole.
    fn split(&mut self, most: u64) -> Option<Piece> {
        let at = self.range.start + most;
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
    /// Of a file with this size and so many bytes of space.
    pub fn new(wish: Wish, handle: Handle, size: u64, allocated: u64) -> Job {
        let wanted = match &wish.only {
            Some(only) => only.ranges.iter().cloned().collect(),
            None => std::iter::once(0..size).collect(),
        };
        Job {
            wish,
            handle,
            size,
            wanted,
            looked: 0,
            pieces: VecDeque::new(),
            sparse: allocated < size,
            in_flight: 0,
            first: None,
            sums: Sums::default(),
            over: false,
            shrank: false,
        }
    }

    /// Whether all of the file is wanted, and none of it is a hole.
    pub fn is_all_data(&self) -> bool {
        let all = 0..self.size;
        !self.sparse && self.wanted.iter().eq([&all])
    }

    /// Has the kernel read nothing but what it is asked for.
    pub fn read_exactly(&self) {
        // Where the advice means nothing, no more can be done.
        let _ = rustix::fs::fadvise(&self.handle, 0, None, Advice::Random);
    }

    /// The next piece to read, at most `most` bytes unless parts of it are cached; `None` when all
    /// of them are gone.
    ///
    /// # Errors
    /// If nobody can be asked any more.
    pub fn next(&mut self, most: u64, largest: u64) -> nowait::Result<Option<Piece>> {
        while !self.over && self.looks_no_further() {
            let Some(window) = self.next_window() else {
                break;
            };
            self.looked = window.end;
            self.look(window, largest)?;
        }
        if self.over {
            return Ok(None);
        }
        let Some(mut piece) = self.pieces.pop_front() else {
            return Ok(None);
        };
        if let Some(rest) = piece.split(most) {
            self.pieces.push_front(rest);
        }
        Ok(Some(piece))
    }

    /// Takes back a piece that is not read yet.
    pub fn give_back(&mut self, piece: Piece) {
        self.pieces.push_front(piece);
    }

    /// Whether there is nothing left to read, and nothing on its way.
    pub fn is_done(&self) -> bool {
        let drained = self.pieces.is_empty() && self.wanted.is_empty();
        self.in_flight == 0 && (self.over || drained)
    }

    /// Bytes of the wanted ranges that are cached now, holes left aside.
    pub fn cached_now(&self) -> nowait::Result<Answer<u64>> {
        let whole = 0..self.size;
        let ranges = match &self.wish.only {
            Some(only) => &only.ranges[..],
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
        // Holes that somebody has read are cached as well; and a page that could not be read is
        // there, without its content.
        let most = if self.over {
            self.sums.data - self.sums.missing + self.sums.brought
        } else {
            self.sums.data
        };
        Ok(Answer::Known {
            value: cached.min(most),
            source: by,
        })
    }

    /// Whether the first piece that was read has left the page cache again: most of it, for the
    /// kernel may take back single pages at any time.
    pub fn loses(&self) -> bool {
        let Some(first) = &self.first else {
            return false;
        };
        residency(&self.handle, first.clone())
            .is_ok_and(|answer| answer.known().is_some_and(|r| r.cached <= r.pages / 2))
    }

    /// Whether the next piece is close to the end of what was looked at.
    fn looks_no_further(&self) -> bool {
        let next = self.pieces.front();
        next.is_none_or(|piece| self.looked - piece.range.start < WINDOW / 2)
    }

    /// The next stretch without holes, no longer than a window.
    fn next_window(&mut self) -> Option<Range<u64>> {
        while let Some(wanted) = self.wanted.front_mut() {
            if self.sparse {
                let data = data_from(&self.handle, wanted.start).min(wanted.end);
                self.sums.holes += data - wanted.start;
                wanted.start = data;
            }
            if wanted.is_empty() {
                self.wanted.pop_front();
                continue;
            }
            let mut window = wanted.start..wanted.end.min(wanted.start.saturating_add(WINDOW));
            if self.sparse {
                window.end = window.end.min(hole_from(&self.handle, window.start));
            }
            wanted.start = window.end;
            if wanted.is_empty() {
                self.wanted.pop_front();
            }
            return Some(window);
        }
        None
    }

    /// Makes pieces of what is not cached.
    fn look(&mut self, window: Range<u64>, largest: u64) -> nowait::Result<()> {
        let len = window.end - window.start;
        let others = self.pieces.len();
        match page_map(&self.handle, window.clone())? {
            Answer::Known { value: map, .. } => {
                let within = map.range();
                self.sums.data += within.end - within.start;
                if within.end < window.end {
                    self.shrank = true;
                    self.wanted.clear();
                }
                for run in map.runs().filter(|run| !run.resident) {
                    self.add(run.range, largest, others);
                }
            }
            // All of it, then.
            Answer::Unknown(_) => {
                self.sums.data += len;
                self.add(window, largest, others);
            }
        }
        Ok(())
    }

    /// Adds what is missing: to the last piece if that stays small enough, else as new ones. What
    /// lies between two missing ranges of one window is cached; so the pieces of `others` are left
    /// as they are.
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
            // The next ones begin where large folios may.
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

/// The first byte with data from this one on; the largest number there is if none follows. A
/// filesystem that can't say has data everywhere.
fn data_from(handle: &Handle, from: u64) -> u64 {
    match rustix::fs::seek(handle, SeekFrom::Data(from)) {
        Ok(at) => at,
        Err(Errno::NXIO) => u64::MAX,
        Err(_) => from,
    }
}

/// The first byte of the next hole; the end of the file is one.
fn hole_from(handle: &Handle, from: u64) -> u64 {
    match rustix::fs::seek(handle, SeekFrom::Hole(from)) {
        Ok(at) if at > from => at,
        _ => u64::MAX,
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
        assert_eq!(first.split(page - 1), None, "never nothing");
        assert_eq!(first.split(1 << 40), None);
    }
}
