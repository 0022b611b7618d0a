//! The source of a file that stays open, and a quick query: is all of a range resident?
//!
//! Each file of crate `nowait` has a [`SourceCache`].

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime};

use once_cell::race::{OnceBool, OnceBox};

use crate::answer::Reason;
use crate::choice::{SourceChoice, choose, choose_layered};
use crate::mapped::{MappedRange, is_past_at};
use crate::pages::{page_size, pages};
use crate::remembered::Remembered;
use crate::sys::Errno;
use crate::sys::cast::to_usize;
use crate::sys::page_cache::cachestat;
use crate::sys::stat::{self, Shape};

/// The part of a range that is resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Every page of the range that lies within the file.
    Full,
    /// Some pages of the range.
    Partial,
    /// No page of the range.
    Empty,
    /// The kernel does not tell.
    Unknown(Reason),
}

/// The residency source of one open file, chosen at the first query. It is boxed, so that files
/// without queries stay small.
///
/// ```
/// use std::os::fd::AsFd;
/// use nowait_residency::source_cache::{Coverage, SourceCache};
/// let file = std::fs::File::open("Cargo.toml")?;
/// let source = SourceCache::default();
/// match source.ask(file.as_fd(), 0, 4096) {
///     Coverage::Full => println!("a read does not wait for the device"),
///     other => println!("{other:?}"),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct SourceCache {
    choice: OnceBox<SourceChoice>,
    /// mincore(2) is correct for the file: tried by the first [`count`](SourceCache::count).
    mincore: OnceBool,
    /// Answers that are used again, if the engine's options allow it.
    remembered: OnceBox<Remembered>,
    /// See [`of_layered`](SourceCache::of_layered).
    changed_before: Option<Box<(i64, i64)>>,
}

impl SourceCache {
    /// For a regular file of overlayfs that is then opened for reading only. `changed_before` is its change time (`st_ctime`,
    /// seconds and nanoseconds), which was asked for after `now`. If the change time is the same at the first query, the file was
    /// not copied up since, and the descriptor itself is mapped: that query takes half the time.
    pub fn of_layered(changed_before: (i64, i64), now: SystemTime) -> SourceCache {
        SourceCache {
            changed_before: is_past_at(changed_before, now).then(|| Box::new(changed_before)),
            ..SourceCache::default()
        }
    }

    /// The source of the file that `fd` refers to. `fd` must always refer to the same file.
    pub(crate) fn choice(&self, fd: BorrowedFd<'_>) -> &SourceChoice {
        self.choice.get_or_init(|| {
            let choice = match &self.changed_before {
                Some(changed) => choose_layered(fd, **changed),
                None => choose(fd),
            };
            Box::new(choice.unwrap_or_else(|errno| SourceChoice::Unavailable(refused(errno))))
        })
    }

    /// Returns true if a source is correct for this file.
    pub fn is_available(&self, fd: BorrowedFd<'_>) -> bool {
        !matches!(self.choice(fd), SourceChoice::Unavailable(_))
    }

    /// The residency of the part of `offset..offset + len` that lies within the file.
    pub fn ask(&self, fd: BorrowedFd<'_>, offset: u64, len: usize) -> Coverage {
        let len = (len as u64).min(u64::MAX - offset);
        coverage(fd, self.choice(fd), offset, len)
            .unwrap_or_else(|errno| Coverage::Unknown(refused(errno)))
    }

    /// Answers about this file that are used again. `fd` must always refer to the same file.
    fn remembered(&self, fd: BorrowedFd<'_>) -> &Remembered {
        self.remembered.get_or_init(|| {
            let size = stat::size(fd).unwrap_or_default();
            Box::new(Remembered::new(size))
        })
    }

    /// Returns true if the pages of a range were resident within the last `memory`.
    pub fn remembers(&self, fd: BorrowedFd<'_>, offset: u64, len: usize, memory: Duration) -> bool {
        self.remembered(fd).contains(offset, len, memory)
    }

    /// Forgets all answers if a page was evicted, among some pages that were resident. Returns true
    /// if it has forgotten them.
    pub fn forget_if_evicted(&self, fd: BorrowedFd<'_>) -> bool {
        let remembered = self.remembered(fd);
        let is_resident = |page: u64| self.ask(fd, page * page_size(), 1) == Coverage::Full;
        let is_evicted = !remembered.sample().all(is_resident);
        if is_evicted {
            remembered.clear();
        }
        is_evicted
    }

    /// As [`ask`](SourceCache::ask), and remembers the resident pages of the range and around it:
    /// a query about 64 pages takes little longer than one about a page.
    pub fn ask_around(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        memory: Duration,
    ) -> Coverage {
        let around = u64::from(u64::BITS) * page_size();
        let end = offset.saturating_add(len as u64);
        let (SourceChoice::Mincore(mapped), true) = (self.choice(fd), end <= i64::MAX as u64)
        else {
            return self.ask(fd, offset, len);
        };
        let start = offset - offset % around;
        let remembered = self.remembered(fd);
        remembered.renew(memory);
        let mut all = true;
        let page = |bytes: Range<u64>, resident| {
            if resident {
                remembered.add(bytes.start);
            } else if bytes.end > offset && bytes.start < end {
                all = false;
            }
            true
        };
        let query = || {
            let shape = stat::shape(fd).map_err(refused)?;
            let len = end.next_multiple_of(around) - start;
            let look = |mapping: &MappedRange| looked_up(fd, &shape, mapping, start, len, page);
            mapped.with(fd, &shape, look)?.map_err(refused)
        };
        match query() {
            Ok(()) if all => Coverage::Full,
            Ok(()) => Coverage::Partial,
            Err(reason) => Coverage::Unknown(reason),
        }
    }

    /// The bytes of `offset..offset + len` that are in the page cache: those of resident pages, as
    /// far as they lie within the file. `None` if mincore(2) is wrong for the file. `layered` is
    /// true if it lies on overlayfs.
    ///
    /// mincore does not count pages that are being read. cachestat(2) does, and so would count the
    /// readahead that a failed `RWF_NOWAIT` read has started.
    ///
    /// The range is mapped for this call alone: a process may have few mappings
    /// (`vm.max_map_count`), and many files.
    pub fn count(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        layered: bool,
    ) -> Option<usize> {
        let choice = match layered {
            true => Some(self.choice(fd)),
            false => self.choice.get(),
        };
        let len = len as u64;
        match choice {
            Some(SourceChoice::Mincore(mapped)) => {
                let shape = stat::shape(fd).ok()?;
                let count =
                    |mapping: &MappedRange| resident_bytes(fd, &shape, mapping, offset, len);
                mapped.with(fd, &shape, count).ok()?.ok()
            }
            Some(SourceChoice::Unavailable(_)) => None,
            Some(SourceChoice::Cachestat) | None => {
                if !self.mincore_is_correct(fd) {
                    return None;
                }
                let first = offset / page_size();
                let mapping = MappedRange::of_pages(fd, first..first + pages(offset, len)).ok()?;
                let shape = stat::shape(fd).ok()?;
                resident_bytes(fd, &shape, &mapping, offset, len).ok()
            }
        }
    }

    fn mincore_is_correct(&self, fd: BorrowedFd<'_>) -> bool {
        self.mincore.get_or_init(|| {
            let size = stat::size(fd).ok();
            size.is_some_and(|size| MappedRange::checked(fd, size).is_some())
        })
    }
}

fn refused(errno: Errno) -> Reason {
    Reason::NoCall(errno.raw_os_error())
}

/// The residency of the part of a range that lies within the file.
///
/// # Errors
/// The kernel's errors.
pub(crate) fn coverage(
    fd: BorrowedFd<'_>,
    choice: &SourceChoice,
    offset: u64,
    len: u64,
) -> Result<Coverage, Errno> {
    match choice {
        SourceChoice::Unavailable(reason) => Ok(Coverage::Unknown(*reason)),
        _ if len == 0 => Ok(Coverage::Full),
        SourceChoice::Cachestat => counted(fd, offset, len),
        SourceChoice::Mincore(mapped) => {
            let shape = stat::shape(fd)?;
            let looked = mapped.with(fd, &shape, |mapping| {
                let mut all = true;
                looked_up(fd, &shape, mapping, offset, len, |_, resident| {
                    all &= resident;
                    all
                })?;
                Ok(all)
            });
            match looked {
                Ok(Ok(true)) => Ok(Coverage::Full),
                Ok(Ok(false)) => Ok(Coverage::Partial),
                Ok(Err(errno)) => Err(errno),
                Err(reason) => Ok(Coverage::Unknown(reason)),
            }
        }
    }
}

fn counted(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<Coverage, Errno> {
    let cached = cachestat(fd, offset, len)?.cached;
    if cached >= pages(offset, len) {
        return Ok(Coverage::Full);
    }
    // Pages beyond the end of the file are never cached.
    let rest = stat::shape(fd)?.size.saturating_sub(offset).min(len);
    Ok(match cached {
        cached if cached >= pages(offset, rest) => Coverage::Full,
        0 => Coverage::Empty,
        _ => Coverage::Partial,
    })
}

/// The bytes of a range that lie on resident pages, within the file.
fn resident_bytes(
    fd: BorrowedFd<'_>,
    shape: &Shape,
    mapping: &MappedRange,
    offset: u64,
    len: u64,
) -> Result<usize, Errno> {
    let mut bytes = 0;
    looked_up(fd, shape, mapping, offset, len, |range, resident| {
        if resident {
            bytes += range.end - range.start;
        }
        true
    })?;
    Ok(to_usize(bytes))
}

/// Calls `page` for each page of a range that lies within the file, with its bytes in the range,
/// and true if it is resident. Ends early if `page` returns false.
fn looked_up(
    fd: BorrowedFd<'_>,
    shape: &Shape,
    mapping: &MappedRange,
    offset: u64,
    len: u64,
    mut page: impl FnMut(Range<u64>, bool) -> bool,
) -> Result<(), Errno> {
    let rest = shape.size.saturating_sub(offset).min(len);
    let mut next = offset / page_size();
    let end = next + pages(offset, rest);
    let mut resident = [0u8; 64];
    while next < end {
        let some = &mut resident[..(end - next).min(64) as usize];
        let after = next + some.len() as u64;
        mapping.look(fd, next..after, some)?;
        for (number, state) in (next..).zip(some) {
            let start = (number * page_size()).max(offset);
            let end = ((number + 1) * page_size()).min(offset + rest);
            if !page(start..end, *state & 1 == 1) {
                return Ok(());
            }
        }
        next = after;
    }
    Ok(())
}
