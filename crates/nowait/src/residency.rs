//! Residency: which pages of a file are in the page cache, asked without reading any.
//!
//! What `fincore(2)` would have state, had it been merged in 2015: cachestat(2) where it tells the
//! truth; else mincore(2) on a mapping, where *that* does; else the honest answer "unknown", and
//! why ([`Reason`]). Nothing is read, no I/O is started, and no page is marked as used.
//!
//! ```
//! use nowait::residency::{Answer, resident_prefix};
//! let file = std::fs::File::open("Cargo.toml")?;
//! match resident_prefix(&file, 0, 4096)? {
//!     Answer::Known { value: 0, .. } => println!("the first byte is not in the page cache"),
//!     Answer::Known { value, source } => println!("{value} bytes are, says {source}"),
//!     Answer::Unknown(reason) => println!("nobody can say: {reason}"),
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Who is asked
//! - cachestat(2) (Linux 6.5), of regular files and block devices. Since 6.14, and in stable kernels
//!   of that time, it says EPERM of a file that one neither owns nor may write nor has open for
//!   writing.
//! - mincore(2) where cachestat is missing, denied, or answers 0 whatever is cached: on overlayfs,
//!   and on FUSE, whose files may be served from the pages of other files. Of a file that one
//!   neither owns nor may write it calls every page resident (since 5.2). A page far beyond the end
//!   of the file can't be; so it is asked about that one first, and if it lies, nobody is asked.
//! - Of hugetlbfs, neither tells.
//!
//! An answer is of the moment: pages come and go while it is on its way. Beyond that,
//! - cachestat counts a page from the moment that its read *begins*. A read of such a page waits, and
//!   a NOWAIT read says "not now". mincore counts it when it has arrived.
//! - A page counts also if only its first byte lies within the file.
//! - Of tmpfs, pages in swap are not cached (to cachestat they are evicted ones).
//! - A hole that was read is cached like data. mincore is not asked about holes of more than 64 MiB
//!   in a row, page by page, and those count as not cached; how many pages that were is said
//!   ([`Residency::unasked`], [`PageMap::unasked`]).
//! - Files with DAX have no page cache. Nothing of them is cached, which is true.
//!
//! # What it costs
//! On one machine with Linux 6.18, in µs. `nowait doctor` measures yours.
//!
//! | | cachestat | mincore |
//! |---|---|---|
//! | a page, by an [`Probe`] or a [`File`](crate::File) | 0.2 yes, 0.4 no | 0.9 |
//! | a page of a file not asked about before | 1.3 | 12 |
//! | 64 MiB, nothing cached | 0.4 | 650 |
//! | 64 MiB, cached page by page | 470 | 970 |
//! | 64 MiB, cached by readahead | 92 | 980 |
//! | the map of 64 MiB, 20 runs | 270 | 690 |
//! | the map of 64 MiB, every other page | 9,600; with mincore's help 1,400 | 920 |

mod answer;
mod ask;
mod choice;
mod mapped;
mod page_map;
mod pages;
mod survey;

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

pub use answer::{Answer, Reason, Source};
pub(crate) use ask::{Coverage, SourceCache};
pub use page_map::{PageMap, Run, Runs};
pub use pages::page_size;

use choice::{SourceChoice, choose, only};
use page_map::Builder;
use pages::pages_of;
use survey::{PageState, Survey};

use crate::error::{Error, ErrorKind, Result};
use crate::sys::stat::{self, Shape};

/// How many bytes from `offset` on are in the page cache without a gap.
///
/// `ssize_t fincore(int fd, NULL, off_t offset, size_t len)` of the kernel list, 2015. The count is
/// clipped to the range and to the file's size, so it is `len` exactly if a read of `len` bytes
/// would find them all; 0 if the first byte is not there, or not in the file. A range that is
/// cached whole, or not at all, takes one question; any other about twice as many as the range's
/// size in pages has binary digits.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) if the range ends beyond `u64`; EBADF for a descriptor
/// opened with `O_PATH`.
///
/// ```
/// use nowait::residency::resident_prefix;
/// let mut file = tempfile::tempfile()?;
/// std::io::Write::write_all(&mut file, &[7; 10_000])?;
/// // Written a moment ago.
/// assert_eq!(resident_prefix(&file, 4000, 50_000)?.known(), Some(6_000));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn resident_prefix(fd: impl AsFd, offset: u64, len: u64) -> Result<Answer<u64>> {
    Probe::new(&fd)?.resident_prefix(offset, len)
}

/// Which pages of a byte range are in the page cache.
///
/// `fincore(2)` with its `page_map`. The map is of what lies within the file; `0..u64::MAX` is all
/// of it. It takes little more than the best of both sources does: cachestat's counts are split
/// until that has cost half of what mincore would, which then looks at the rest.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) if the range ends before it begins; EBADF for a
/// descriptor opened with `O_PATH`.
///
/// ```
/// use nowait::residency::page_map;
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

/// How many pages of a byte range are in the page cache, and in what state.
///
/// cachestat(2), clipped to the file's size: one question, whatever is cached. mincore(2) tells
/// only what is cached.
///
/// # Errors
/// As [`page_map`].
///
/// ```
/// use nowait::residency::residency;
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

/// How many pages of a range are cached, and in what state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Residency {
    /// Pages of the range that lie within the file.
    pub pages: u64,
    /// Pages that are cached.
    pub cached: u64,
    /// Cached pages that are changed and not yet on their way to the device. A large folio with one
    /// changed byte is dirty as a whole. This and the next three: only cachestat(2) knows.
    pub dirty: Option<u64>,
    /// Cached pages on their way to the device.
    pub writeback: Option<u64>,
    /// Pages that were cached and had to go (on tmpfs: to swap), as far as the kernel remembers.
    pub evicted: Option<u64>,
    /// Evicted pages that went so lately that they would be kept if they came back.
    pub recently_evicted: Option<u64>,
    /// Pages of large holes that were not asked about, and count as not cached; only where mincore
    /// alone can be asked.
    pub unasked: u64,
}

/// Asks about one file, any number of times: who is to be asked is found out once, and a mapping
/// for mincore(2) is kept (address space of the file's size, up to 64 GiB).
///
/// ```
/// use nowait::residency::{Probe, Source};
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
    choice: SourceChoice,
    alone: bool,
}

impl<'fd> Probe<'fd> {
    /// Finds out who tells the truth about this file.
    ///
    /// # Errors
    /// EBADF for a descriptor opened with `O_PATH`.
    pub fn new(fd: &'fd impl AsFd) -> Result<Probe<'fd>> {
        let fd = fd.as_fd();
        let choice = choose(fd).map_err(|errno| Error::os("residency", errno))?;
        Ok(Probe {
            fd,
            choice,
            alone: false,
        })
    }

    /// Asks only this source, whether it tells the truth of the file or not: for comparing the two,
    /// and for who wants pages counted only when they have arrived (mincore).
    ///
    /// # Errors
    /// What cachestat(2) or mmap(2) say of the file.
    pub fn only(source: Source, fd: &'fd impl AsFd) -> Result<Probe<'fd>> {
        let fd = fd.as_fd();
        let failed = |errno| match source {
            Source::Cachestat => Error::os("cachestat", errno),
            Source::Mincore => Error::os("mmap", errno),
        };
        Ok(Probe {
            fd,
            choice: only(source, fd).map_err(failed)?,
            alone: true,
        })
    }

    /// Whether it calls resident what can't be, as mincore(2) does of every page of a file that is
    /// somebody else's. [`new`](Probe::new) chooses no liar.
    ///
    /// # Errors
    /// As mincore(2) says.
    pub fn is_untrustworthy(&self) -> Result<bool> {
        match &self.choice {
            SourceChoice::Mincore(mapped) => mapped
                .is_untrustworthy()
                .map_err(|e| Error::os("mincore", e)),
            SourceChoice::Cachestat | SourceChoice::Unavailable(_) => Ok(false),
        }
    }

    /// Who is asked, or why nobody.
    ///
    /// # Errors
    /// The reason why every answer is [`Answer::Unknown`].
    pub fn source(&self) -> Result<Source, Reason> {
        self.view().source()
    }

    /// Whether all of a range that lies within the file is in the page cache: the question of a
    /// strict read, and the quickest one. A yes by cachestat(2) is one system call.
    ///
    /// # Errors
    /// As [`resident_prefix`].
    pub fn is_resident(&self, offset: u64, len: u64) -> Result<Answer<bool>> {
        self.view().is_resident(offset, len)
    }

    /// As [`resident_prefix`].
    ///
    /// # Errors
    /// As there.
    pub fn resident_prefix(&self, offset: u64, len: u64) -> Result<Answer<u64>> {
        self.view().resident_prefix(offset, len)
    }

    /// As [`page_map`].
    ///
    /// # Errors
    /// As there.
    pub fn page_map(&self, range: Range<u64>) -> Result<Answer<PageMap>> {
        self.view().page_map(range)
    }

    /// As [`residency`].
    ///
    /// # Errors
    /// As there.
    pub fn residency(&self, range: Range<u64>) -> Result<Answer<Residency>> {
        self.view().residency(range)
    }

    fn view(&self) -> View<'_> {
        View {
            fd: self.fd,
            choice: &self.choice,
            alone: self.alone,
        }
    }
}

/// Who asks whom about which file: what an [`Probe`] and a handle have in common.
pub(crate) struct View<'a> {
    fd: BorrowedFd<'a>,
    choice: &'a SourceChoice,
    alone: bool,
}

impl<'a> View<'a> {
    pub(crate) fn new(fd: BorrowedFd<'a>, cache: &'a SourceCache) -> View<'a> {
        View {
            fd,
            choice: cache.choice(fd),
            alone: false,
        }
    }

    fn source(&self) -> Result<Source, Reason> {
        match self.choice {
            SourceChoice::Cachestat => Ok(Source::Cachestat),
            SourceChoice::Mincore(_) => Ok(Source::Mincore),
            SourceChoice::Unavailable(reason) => Err(*reason),
        }
    }

    pub(crate) fn is_resident(&self, offset: u64, len: u64) -> Result<Answer<bool>> {
        end("is_resident", offset, len)?;
        let source = match self.source() {
            Ok(source) => source,
            Err(reason) => return Ok(Answer::Unknown(reason)),
        };
        ask::coverage(self.fd, self.choice, offset, len)
            .map(|coverage| Answer::Known {
                value: coverage == Coverage::Full,
                source,
            })
            .map_err(|errno| Error::os("is_resident", errno))
    }

    pub(crate) fn resident_prefix(&self, offset: u64, len: u64) -> Result<Answer<u64>> {
        let end = end("resident_prefix", offset, len)?;
        self.answer("resident_prefix", offset..end, |survey, range| {
            let first = range.start / page_size();
            let whole = survey.prefix(first..first + pages_of(&range))?;
            let there = ((first + whole) * page_size()).min(range.end);
            Ok(there.saturating_sub(range.start))
        })
    }

    pub(crate) fn page_map(&self, range: Range<u64>) -> Result<Answer<PageMap>> {
        self.answer("page_map", range, |survey, range| {
            let first = range.start / page_size();
            let pages = first..first + pages_of(&range);
            let mut map = Builder::new(range, page_size());
            survey.each(pages, &mut |n, state| match state {
                PageState::Unasked => map.skip(n),
                state => map.push(n, state == PageState::Resident),
            })?;
            Ok(map.finish())
        })
    }

    pub(crate) fn residency(&self, range: Range<u64>) -> Result<Answer<Residency>> {
        self.answer("residency", range, |survey, range| {
            let first = range.start / page_size();
            let pages = first..first + pages_of(&range);
            let mut sum = Residency {
                pages: pages.end - pages.start,
                ..Residency::default()
            };
            if matches!(survey.choice, SourceChoice::Cachestat) {
                let stat = survey.count(&pages)?;
                sum.cached = stat.cached;
                sum.dirty = Some(stat.dirty);
                sum.writeback = Some(stat.writeback);
                sum.evicted = Some(stat.evicted);
                sum.recently_evicted = Some(stat.recently_evicted);
            } else {
                survey.each(pages, &mut |n, state| match state {
                    PageState::Resident => sum.cached += n,
                    PageState::Missing => {}
                    PageState::Unasked => sum.unasked += n,
                })?;
            }
            Ok(sum)
        })
    }

    /// Has a range looked at, if there is somebody to ask: what of it lies within the file.
    fn answer<T>(
        &self,
        operation: &'static str,
        range: Range<u64>,
        look: impl FnOnce(Survey<'_>, Range<u64>) -> Result<T, crate::sys::Errno>,
    ) -> Result<Answer<T>> {
        if range.start > range.end {
            return Err(Error::new(operation, ErrorKind::InvalidInput));
        }
        let source = match self.source() {
            Ok(source) => source,
            Err(reason) => return Ok(Answer::Unknown(reason)),
        };
        let failed = |errno| Error::os(operation, errno);
        let shape = stat::shape(self.fd).map_err(failed)?;
        let survey = Survey {
            fd: self.fd,
            choice: self.choice,
            alone: self.alone,
            shape,
        };
        let value = look(survey, within(&shape, range)).map_err(failed)?;
        Ok(Answer::Known { value, source })
    }
}

/// The end of a range of the caller's.
fn end(operation: &'static str, offset: u64, len: u64) -> Result<u64> {
    let end = offset.checked_add(len);
    end.ok_or(Error::new(operation, ErrorKind::InvalidInput))
}

/// What of a range lies within the file; empty, and where it began, if nothing does.
fn within(shape: &Shape, range: Range<u64>) -> Range<u64> {
    range.start..range.end.min(shape.size).max(range.start)
}
