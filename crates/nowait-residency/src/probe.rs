//! Queries of one file.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use crate::answer::{Answer, Reason, Source};
use crate::choice::{SourceChoice, choose, only};
use crate::error::{Error, Result};
use crate::mapped::MappedRange;
use crate::page_map::{Builder, PageMap};
use crate::page_query::{PageQuery, PageState};
use crate::pages::{page_size, pages_of};
use crate::source_cache::{Coverage, SourceCache, coverage};
use crate::sys::page_cache::Cachestat;
use crate::sys::{Errno, stat};

/// The number of bytes from `offset` on that are in the page cache without a gap.
///
/// This is `ssize_t fincore(int fd, NULL, off_t offset, size_t len)` of the kernel list, 2015. The
/// count is clipped to the range and to the file's size. It is `len` exactly if a read of `len`
/// bytes would find all of them cached. It is 0 if the first byte is not cached or not in the file.
/// A range that is completely cached or not cached at all takes one query. Any other range takes
/// about 2 × log₂(pages) queries.
///
/// # Errors
/// [`is_invalid_range`](Error::is_invalid_range) if the range ends beyond `u64`; EBADF for a descriptor
/// opened with `O_PATH`.
///
/// ```
/// use nowait_residency::resident_prefix;
/// let mut file = tempfile::tempfile()?;
/// std::io::Write::write_all(&mut file, &[7; 10_000])?;
/// // Written a moment ago.
/// assert_eq!(resident_prefix(&file, 4000, 50_000)?.known(), Some(6_000));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn resident_prefix(fd: impl AsFd, offset: u64, len: u64) -> Result<Answer<u64>> {
    Probe::new(&fd)?.resident_prefix(offset, len)
}

/// The pages of a byte range that are in the page cache.
///
/// This is `fincore(2)` with its `page_map`. The map covers the pages of the range that lie within
/// the file; `0..u64::MAX` is the whole file. The cost is little more than that of the cheaper
/// source: ranges are split and counted by cachestat until that has cost half of what mincore
/// would, and mincore then looks at the rest.
///
/// # Errors
/// [`is_invalid_range`](Error::is_invalid_range) if the range ends before it begins; EBADF for a
/// descriptor opened with `O_PATH`.
///
/// ```
/// use nowait_residency::page_map;
/// let file = std::fs::File::open("Cargo.toml")?;
/// if let Some(map) = page_map(&file, 0..u64::MAX)?.known() {
///     for run in map.runs() {
///         println!("{:?} {}", run.range, if run.resident { "cached" } else { "not cached" });
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn page_map(fd: impl AsFd, range: Range<u64>) -> Result<Answer<PageMap>> {
    Probe::new(&fd)?.page_map(range)
}

/// The number of pages of a byte range that are in the page cache, and their state.
///
/// cachestat(2) answers with one query, whatever is cached. The range is clipped to the file's
/// pages. mincore(2) answers only how many pages are cached.
///
/// # Errors
/// As [`page_map`].
///
/// ```
/// use nowait_residency::residency;
/// let file = std::fs::File::open("Cargo.toml")?;
/// if let Some(sum) = residency(&file, 0..u64::MAX)?.known() {
///     assert!(sum.cached <= sum.pages);
///     match sum.dirty {
///         Some(dirty) => println!("{} of {} pages, {dirty} dirty", sum.cached, sum.pages),
///         None => println!("{} of {} pages", sum.cached, sum.pages),
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn residency(fd: impl AsFd, range: Range<u64>) -> Result<Answer<Residency>> {
    Probe::new(&fd)?.residency(range)
}

/// [`residency`] of many ranges of one file, in their order. The file is looked at once.
///
/// # Errors
/// As [`page_map`].
///
/// ```
/// use nowait_residency::residency_of_ranges;
/// let file = std::fs::File::open("Cargo.toml")?;
/// let ranges = [0..100, 4096..8192, 0..u64::MAX];
/// if let Some(sums) = residency_of_ranges(&file, &ranges)?.known() {
///     for (range, sum) in ranges.iter().zip(sums) {
///         println!("{range:?}: {} of {} pages", sum.cached, sum.pages);
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn residency_of_ranges(fd: impl AsFd, ranges: &[Range<u64>]) -> Result<Answer<Vec<Residency>>> {
    Probe::new(&fd)?.residency_of_ranges(ranges)
}

/// The number of cached pages of a range, and their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Residency {
    /// Pages of the file that the range touches.
    pub pages: u64,
    /// Pages that are cached.
    pub cached: u64,
    /// Cached pages that are changed and not yet being written to the device. A large folio with
    /// one changed byte counts as dirty as a whole. Only cachestat(2) reports this field and the
    /// next three.
    pub dirty: Option<u64>,
    /// Cached pages that are being written to the device.
    pub writeback: Option<u64>,
    /// Pages that were cached and were evicted (on tmpfs: to swap), as far as the kernel remembers.
    pub evicted: Option<u64>,
    /// Pages that were evicted so recently that they would be kept if they were read again.
    pub recently_evicted: Option<u64>,
    /// Pages of large holes that were not asked about. They count as not cached. Only mincore
    /// leaves pages unasked.
    pub unasked: u64,
}

impl Residency {
    /// The numbers of cachestat(2) for so many pages.
    pub(crate) fn counted(pages: u64, counts: &Cachestat) -> Residency {
        Residency {
            pages,
            cached: counts.cached,
            dirty: Some(counts.dirty),
            writeback: Some(counts.writeback),
            evicted: Some(counts.evicted),
            recently_evicted: Some(counts.recently_evicted),
            unasked: 0,
        }
    }
}

/// Queries the residency of one file, any number of times.
///
/// The source is chosen once. If it is mincore(2), a mapping of the file is kept (address space of
/// the file's size, up to 64 GiB).
///
/// ```
/// use nowait_residency::{Probe, Source};
/// let file = std::fs::File::open("Cargo.toml")?;
/// let probe = Probe::new(&file)?;
/// match probe.source() {
///     Ok(Source::Cachestat) => println!("{:?}", probe.residency(0..u64::MAX)?),
///     Ok(Source::Mincore) => println!("only what is cached is known here"),
///     Err(reason) => println!("{reason}"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Probe<'fd> {
    fd: BorrowedFd<'fd>,
    choice: Choice<'fd>,
    alone: bool,
    /// The path of the file, for errors.
    path: Option<&'fd Arc<Path>>,
}

/// The source of a probe: its own, or that of an open file.
#[derive(Debug)]
enum Choice<'a> {
    Own(SourceChoice),
    Cached(&'a SourceChoice),
}

impl<'fd> Probe<'fd> {
    /// Chooses the source that is correct for this file.
    ///
    /// # Errors
    /// EBADF for a descriptor opened with `O_PATH`.
    pub fn new(fd: &'fd impl AsFd) -> Result<Probe<'fd>> {
        let fd = fd.as_fd();
        let choice = choose(fd).map_err(|errno| Error::os("residency", errno))?;
        Ok(Probe {
            fd,
            choice: Choice::Own(choice),
            alone: false,
            path: None,
        })
    }

    /// Uses only this source, even if it is wrong for the file. Use it to compare the two sources,
    /// or to count pages only when their data has arrived (mincore).
    ///
    /// # Errors
    /// The errors of cachestat(2) or mmap(2).
    pub fn only(source: Source, fd: &'fd impl AsFd) -> Result<Probe<'fd>> {
        let fd = fd.as_fd();
        let failed = |errno| match source {
            Source::Cachestat => Error::os("cachestat", errno),
            Source::Mincore => Error::os("mmap", errno),
        };
        Ok(Probe {
            fd,
            choice: Choice::Own(only(source, fd).map_err(failed)?),
            alone: true,
            path: None,
        })
    }

    /// A probe of an open file with the source that was chosen for it before. Errors name `path`.
    pub fn with_cache(
        fd: BorrowedFd<'fd>,
        cache: &'fd SourceCache,
        path: Option<&'fd Arc<Path>>,
    ) -> Probe<'fd> {
        Probe {
            fd,
            choice: Choice::Cached(cache.choice(fd)),
            alone: false,
            path,
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'fd> {
        self.fd
    }

    fn choice(&self) -> &SourceChoice {
        match &self.choice {
            Choice::Own(choice) => choice,
            Choice::Cached(choice) => choice,
        }
    }

    /// Returns true if the source reports pages as resident that cannot be, as mincore(2) does for
    /// every page of a file that the caller neither owns nor may write. [`new`](Probe::new) never
    /// chooses such a source.
    ///
    /// # Errors
    /// The errors of mincore(2).
    pub fn is_untrustworthy(&self) -> Result<bool> {
        match self.choice() {
            SourceChoice::Mincore(mapped) => {
                let answer = mapped.is_untrustworthy(self.fd);
                answer.map_err(|e| Error::os("mincore", e).on(self.path))
            }
            SourceChoice::Cachestat | SourceChoice::Unavailable(_) => Ok(false),
        }
    }

    /// The source that is used.
    ///
    /// # Errors
    /// The reason why every answer is [`Answer::Unknown`].
    pub fn source(&self) -> Result<Source, Reason> {
        match self.choice() {
            SourceChoice::Cachestat => Ok(Source::Cachestat),
            SourceChoice::Mincore(_) => Ok(Source::Mincore),
            SourceChoice::Unavailable(reason) => Err(*reason),
        }
    }

    /// Returns true if the whole part of the range that lies within the file is in the page cache.
    /// Strict reads use this query. It is the fastest one: cachestat(2) confirms residency with one
    /// system call.
    ///
    /// # Errors
    /// As [`resident_prefix`].
    pub fn is_resident(&self, offset: u64, len: u64) -> Result<Answer<bool>> {
        self.end("is_resident", offset, len)?;
        let source = match self.source() {
            Ok(source) => source,
            Err(reason) => return Ok(Answer::Unknown(reason)),
        };
        match coverage(self.fd, self.choice(), offset, len) {
            Ok(Coverage::Unknown(reason)) => Ok(Answer::Unknown(reason)),
            Ok(coverage) => Ok(Answer::Known {
                value: coverage == Coverage::Full,
                source,
            }),
            Err(errno) => Err(Error::os("is_resident", errno).on(self.path)),
        }
    }

    /// See [`resident_prefix`].
    ///
    /// # Errors
    /// As [`resident_prefix`].
    pub fn resident_prefix(&self, offset: u64, len: u64) -> Result<Answer<u64>> {
        let end = self.end("resident_prefix", offset, len)?;
        self.answer("resident_prefix", |query| {
            let range = within(offset..end, query.shape.size);
            let first = range.start / page_size();
            let whole = query.prefix(first..first + pages_of(&range))?;
            let there = ((first + whole) * page_size()).min(range.end);
            Ok(there.saturating_sub(range.start))
        })
    }

    /// See [`page_map`].
    ///
    /// # Errors
    /// As [`page_map`].
    pub fn page_map(&self, range: Range<u64>) -> Result<Answer<PageMap>> {
        self.check("page_map", &range)?;
        self.answer("page_map", |query| {
            let size = query.shape.size;
            let range = within_pages(range, size);
            let first = range.start / page_size();
            let pages = first..first + pages_of(&range);
            let mut map = Builder::new(range, size, page_size());
            query.each(pages, &mut |n, state| match state {
                PageState::Unasked => map.skip(n),
                state => map.push(n, state == PageState::Resident),
            })?;
            Ok(map.finish())
        })
    }

    /// See [`residency`].
    ///
    /// # Errors
    /// As [`residency`].
    pub fn residency(&self, range: Range<u64>) -> Result<Answer<Residency>> {
        self.check("residency", &range)?;
        self.answer("residency", |query| counted(&query, range))
    }

    /// See [`residency_of_ranges`].
    ///
    /// # Errors
    /// As [`residency_of_ranges`].
    pub fn residency_of_ranges(&self, ranges: &[Range<u64>]) -> Result<Answer<Vec<Residency>>> {
        let name = "residency_of_ranges";
        ranges
            .iter()
            .try_for_each(|range| self.check(name, range))?;
        self.answer(name, |query| {
            let each = ranges.iter().map(|range| counted(&query, range.clone()));
            each.collect()
        })
    }

    /// Applies `look` to the file, if it has a residency source.
    fn answer<T>(
        &self,
        operation: &'static str,
        look: impl FnOnce(PageQuery<'_>) -> Result<T, Errno>,
    ) -> Result<Answer<T>> {
        let source = match self.source() {
            Ok(source) => source,
            Err(reason) => return Ok(Answer::Unknown(reason)),
        };
        let failed = |errno| Error::os(operation, errno).on(self.path);
        let shape = stat::shape(self.fd).map_err(failed)?;
        let look = |mapping: Option<&MappedRange>| {
            look(PageQuery {
                fd: self.fd,
                mapping,
                alone: self.alone,
                shape,
            })
        };
        let looked = match self.choice() {
            SourceChoice::Mincore(mapped) => mapped.with(self.fd, &shape, |w| look(Some(w))),
            SourceChoice::Cachestat | SourceChoice::Unavailable(_) => Ok(look(None)),
        };
        match looked {
            Ok(Ok(value)) => Ok(Answer::Known { value, source }),
            Ok(Err(errno)) => Err(failed(errno)),
            Err(reason) => Ok(Answer::Unknown(reason)),
        }
    }

    /// Fails if a range of the caller ends before it begins.
    fn check(&self, operation: &'static str, range: &Range<u64>) -> Result<()> {
        match range.start <= range.end {
            true => Ok(()),
            false => Err(Error::invalid_range(operation).on(self.path)),
        }
    }

    /// The end of a range given by the caller.
    fn end(&self, operation: &'static str, offset: u64, len: u64) -> Result<u64> {
        let invalid = || Error::invalid_range(operation).on(self.path);
        offset.checked_add(len).ok_or_else(invalid)
    }
}

/// The numbers of the pages of a range.
pub(crate) fn counted(query: &PageQuery<'_>, range: Range<u64>) -> Result<Residency, Errno> {
    let range = within_pages(range, query.shape.size);
    let first = range.start / page_size();
    let pages = first..first + pages_of(&range);
    if query.mapping.is_none() {
        let number = pages.end - pages.start;
        return Ok(Residency::counted(number, &query.count(&pages)?));
    }
    let mut sum = Residency {
        pages: pages.end - pages.start,
        ..Residency::default()
    };
    query.each(pages, &mut |n, state| match state {
        PageState::Resident => sum.cached += n,
        PageState::Missing => {}
        PageState::Unasked => sum.unasked += n,
    })?;
    Ok(sum)
}

/// The part of a range that lies within a file of this size. It is empty, and begins where the
/// range begins, if no part does.
fn within(range: Range<u64>, size: u64) -> Range<u64> {
    range.start..range.end.min(size).max(range.start)
}

/// Like `within`, for pages: a range that begins after the end of the file keeps its part of the
/// last page.
fn within_pages(range: Range<u64>, size: u64) -> Range<u64> {
    if range.start < size {
        within(range, size)
    } else {
        within(range, size.next_multiple_of(page_size()))
    }
}
