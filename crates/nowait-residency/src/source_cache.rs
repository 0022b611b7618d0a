//! The source of a file that stays open, and a quick query: is all of a range resident?
//!
//! Each file of crate `nowait` has a [`SourceCache`].

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::SystemTime;

use once_cell::race::{OnceBool, OnceBox};

use crate::answer::Reason;
use crate::choice::{SourceChoice, choose, choose_layered};
use crate::mapped::{MappedRange, is_past_at};
use crate::pages::{page_size, pages};
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
