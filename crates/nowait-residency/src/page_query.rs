//! Finds the cached pages of a range, at little more than the cost of the cheaper source.
//!
//! cachestat(2) counts pages and does not tell which ones are cached. A count of none or all is an
//! answer; any other range is split. That is cheap if the cache has long runs. If every other page
//! is cached, it takes two calls for each page. mincore(2) costs the same for each page, cached or
//! not. Ranges are therefore split until that has cost about half of what mincore would.

use std::cell::OnceCell;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use crate::mapped::MappedRange;
use crate::pages::page_size;
use crate::sys::Errno;
use crate::sys::cast::to_usize;
use crate::sys::lease;
use crate::sys::page_cache::{Cachestat, cachestat};
use crate::sys::reopen::reopen;
use crate::sys::stat::Shape;

/// Bytes queried by one call of mincore(2), and the size from which splitting has a limit on its
/// cost.
const CHUNK: u64 = 64 << 20;
/// The number of parts into which a larger range is split.
const PARTS: u64 = 16;
/// The cost of a cachestat(2) call without its counting, in units of one counted cached page (28
/// ns).
const CALL: u64 = 15;
/// The cost of a mapping, in the same unit.
const MAPPING: u64 = 400;

/// A query about a file's pages.
pub(crate) struct PageQuery<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    /// The mapping for mincore(2); `None` if cachestat(2) is asked.
    pub(crate) mapping: Option<&'a MappedRange>,
    /// True if cachestat must not be assisted by mincore.
    pub(crate) alone: bool,
    /// The current shape of the file.
    pub(crate) shape: Shape,
}

/// The state of a number of consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageState {
    Missing,
    Resident,
    /// Not asked about: a large hole.
    Unasked,
}

impl PageState {
    fn all(resident: bool) -> PageState {
        if resident {
            PageState::Resident
        } else {
            PageState::Missing
        }
    }
}

impl PageQuery<'_> {
    /// The number of resident pages before the first page that is not resident.
    pub(crate) fn prefix(&self, pages: Range<u64>) -> Result<u64, Errno> {
        match self.mapping {
            None => self.prefix_counted(pages),
            Some(mapping) => self.prefix_looked_up(mapping, pages),
        }
    }

    /// Calls `tell` for all pages in order, with a number of pages and their state.
    pub(crate) fn each(
        &self,
        pages: Range<u64>,
        tell: &mut dyn FnMut(u64, PageState),
    ) -> Result<(), Errno> {
        match self.mapping {
            None => self.split(pages, tell),
            Some(mapping) => self.look_up(mapping, pages, tell),
        }
    }

    /// The counts of cachestat(2) for these pages.
    pub(crate) fn count(&self, pages: &Range<u64>) -> Result<Cachestat, Errno> {
        if pages.is_empty() {
            // The kernel interprets a length of 0 as "to the end of the file".
            return Ok(Cachestat::default());
        }
        cachestat(self.fd, pages.start * page_size(), len(pages) * page_size())
    }

    fn prefix_counted(&self, pages: Range<u64>) -> Result<u64, Errno> {
        let (first, mut rest) = (pages.start, pages);
        // All of `first..rest.start` is resident. `rest` is not completely resident.
        let mut counted = self.count(&rest)?.cached;
        if counted >= len(&rest) {
            return Ok(len(&rest));
        }
        while counted > 0 && len(&rest) > 1 {
            let half = rest.start..middle(&rest);
            let there = self.count(&half)?.cached;
            if there >= len(&half) {
                // The count of the other half is not known. It is less than its length.
                rest = half.end..rest.end;
            } else {
                (rest, counted) = (half, there);
            }
        }
        Ok(rest.start - first)
    }

    fn prefix_looked_up(&self, mapping: &MappedRange, pages: Range<u64>) -> Result<u64, Errno> {
        // Most ranges are short, and most prefixes too.
        let mut step = 64;
        let mut resident = Vec::new();
        let mut next = pages.start;
        while next < pages.end {
            let end = pages.end.min(next + step);
            resident.resize(to_usize(end - next), 0);
            mapping.look(self.fd, next..end, &mut resident)?;
            if let Some(gap) = resident.iter().position(|p| p & 1 == 0) {
                return Ok(next - pages.start + gap as u64);
            }
            next = end;
            step = (step * 4).min(CHUNK / page_size());
        }
        Ok(len(&pages))
    }

    fn split(&self, pages: Range<u64>, tell: &mut dyn FnMut(u64, PageState)) -> Result<(), Errno> {
        let help = OnceCell::new();
        let mut rest = vec![pages];
        while let Some(pages) = rest.pop() {
            let cached = self.count(&pages)?.cached;
            if cached == 0 || cached >= len(&pages) {
                tell(len(&pages), PageState::all(cached > 0));
            } else if len(&pages) > CHUNK / page_size() {
                let part = (len(&pages) / PARTS).next_power_of_two();
                let part = part.max(CHUNK / page_size());
                let mut end = pages.end;
                while end > pages.start {
                    let start = ((end - 1) / part * part).max(pages.start);
                    rest.push(start..end);
                    end = start;
                }
            } else {
                self.chunk(pages, &help, tell)?;
            }
        }
        Ok(())
    }

    /// Reports a partly cached chunk.
    fn chunk(
        &self,
        chunk: Range<u64>,
        help: &OnceCell<Option<MappedRange>>,
        tell: &mut dyn FnMut(u64, PageState),
    ) -> Result<(), Errno> {
        let half = middle(&chunk);
        let mut rest = vec![half..chunk.end, chunk.start..half];
        let mut spent = 0;
        while let Some(pages) = rest.pop() {
            if spent > MAPPING + len(&chunk) / 2 && !self.alone {
                let help = help.get_or_init(|| MappedRange::checked(self.fd, self.shape.size));
                if let Some(mapping) = help {
                    return self.look_up(mapping, pages.start..chunk.end, tell);
                }
            }
            let cached = self.count(&pages)?.cached;
            spent += CALL + cached;
            if cached == 0 || cached >= len(&pages) {
                tell(len(&pages), PageState::all(cached > 0));
            } else {
                let middle = middle(&pages);
                rest.extend([middle..pages.end, pages.start..middle]);
            }
        }
        Ok(())
    }

    fn look_up(
        &self,
        mapping: &MappedRange,
        pages: Range<u64>,
        tell: &mut dyn FnMut(u64, PageState),
    ) -> Result<(), Errno> {
        let holes = Holes::of(self.fd, &self.shape, &pages);
        let mut resident = Vec::new();
        let mut next = pages.start;
        while next < pages.end {
            let mut end = pages.end.min(next + CHUNK / page_size());
            let data = holes.as_ref().map_or(next, |holes| holes.data_from(next));
            if data >= end {
                end = data.min(pages.end);
                tell(end - next, PageState::Unasked);
            } else {
                resident.resize(to_usize(end - next), 0);
                mapping.look(self.fd, next..end, &mut resident)?;
                for run in resident.chunk_by(|a, b| a & 1 == b & 1) {
                    tell(run.len() as u64, PageState::all(run[0] & 1 == 1));
                }
            }
            next = end;
        }
        Ok(())
    }
}

/// The holes of a file with large holes.
struct Holes(std::os::fd::OwnedFd);

impl Holes {
    /// Returns `None` if there is no large hole, or the file cannot be reopened. Seeking for data
    /// moves the file position, and the caller's position must not move. Reopening would break the
    /// descriptor's own lease for writing.
    fn of(fd: BorrowedFd<'_>, shape: &Shape, pages: &Range<u64>) -> Option<Holes> {
        let large = len(pages) * page_size() > CHUNK
            && shape.size - shape.allocated.min(shape.size) > CHUNK;
        if large && !lease::is_for_writing(fd) {
            reopen(fd).ok().map(Holes)
        } else {
            None
        }
    }

    /// The first page with data at or after `from`.
    fn data_from(&self, from: u64) -> u64 {
        match rustix::fs::seek(&self.0, rustix::fs::SeekFrom::Data(from * page_size())) {
            Ok(at) => at / page_size(),
            Err(Errno::NXIO) => u64::MAX,
            Err(_) => from,
        }
    }
}

fn len(pages: &Range<u64>) -> u64 {
    pages.end - pages.start
}

/// The page number at which to halve a range: the one with the most trailing zeros, because reads
/// and folios begin and end at such numbers.
fn middle(pages: &Range<u64>) -> u64 {
    let last = pages.end - 1;
    let bit = (pages.start ^ last).ilog2();
    last >> bit << bit
}
