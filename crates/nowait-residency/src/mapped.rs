//! Mappings of a file for mincore(2).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;

use crate::answer::Reason;
use crate::pages::page_size;
use crate::sys::Errno;
use crate::sys::cast::to_usize;
use crate::sys::page_cache::Mapping;
use crate::sys::process::PerProcess;
use crate::sys::reopen::reopen;
use crate::sys::stat::{self, Shape};

/// Address space that is mapped beyond the end of a file. A file that grows less than this needs no
/// further mapping. The last page of it shows if mincore is wrong. It must therefore lie beyond the
/// folio at the end of the file.
const GROWTH: u64 = 16 << 20;
/// The maximum address space that is kept for one file.
const MAX_MAPPED: u64 = 64 << 30;
/// The maximum number of mappings that this process keeps. By default, the kernel allows 65,530
/// mappings in a process (`vm.max_map_count`, proc(5)), which includes its memory and libraries.
const MAX_KEPT: usize = 1024;

/// The mappings that are kept, the oldest first. Some are gone with their files.
static KEPT: PerProcess<Mutex<VecDeque<Weak<Slot>>>> = PerProcess::new();

/// The place of a mapping. It is empty if later ones have taken its place among [`MAX_KEPT`].
type Slot = RwLock<Option<Current>>;

/// A mapped part of a file, from `start` on, for queries by mincore(2).
#[derive(Debug)]
pub(crate) struct MappedRange {
    start: u64,
    mapping: Mapping,
    /// True if mappings are made with the file opened again.
    reopens: bool,
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping({} bytes)", self.len())
    }
}

/// The mapping of a file, if mincore(2) is correct for it.
///
/// # Files of overlayfs
/// Such a file is in a lower layer until it is changed. The change copies it up, and all reads use
/// the copy from then on, also those of descriptors that were opened before. A mapping is
/// different: it is of the layer that the file was in when its descriptor was opened. mincore on it
/// then answers for a file that is not read any more.
///
/// Therefore a file is opened again to be mapped, and a mapping is used only as long as it is of
/// the file that is read:
/// - A file that is open for writing was copied up when it was opened, and is not copied up again.
/// - Other mappings are used while the change time (`st_ctime`) is as it was before the mapping was
///   made. A copy-up makes a file and gives it the time of that moment as its change time, which no
///   call can set. That also holds if an attribute is copied up first, and the bytes later (mount
///   option `metacopy=on`).
/// - Change times have the resolution of a clock tick, or of a second. A mapping that is made so
///   soon after the change time that a copy-up could have the same one is used for one query. A
///   copy-up is missed only if the clock was set back to the very tick of the change time
///   meanwhile.
///
/// The change time is queried with the size, so that this needs no further system call.
///
/// # Many files
/// A process keeps [`MAX_KEPT`] mappings. Further ones take the place of the oldest, whose file is
/// mapped again for its next query.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// Queries do not wait for the lock: in a forked child, the thread that holds it may not exist.
    /// They map the file once more instead.
    kept: Arc<Slot>,
    /// True if the file lies on overlayfs.
    layered: bool,
    /// True if mincore was found to be correct, and must be found so again for a new mapping.
    checked: bool,
}

/// A mapping, and how long it may be used.
#[derive(Debug)]
struct Current {
    mapping: MappedRange,
    valid: Valid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Valid {
    Always,
    /// While the file has this change time.
    While((i64, i64)),
    /// Not for a second query.
    Once,
}

/// The call that failed where a file cannot be mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failed {
    Open(Errno),
    Map(Errno),
}

impl From<Failed> for Reason {
    fn from(failed: Failed) -> Reason {
        match failed {
            Failed::Open(errno) => Reason::NotReopened(errno.raw_os_error()),
            Failed::Map(Errno::ACCESS) => Reason::NotReadable,
            Failed::Map(errno) => Reason::NoMapping(errno.raw_os_error()),
        }
    }
}

impl Mapped {
    /// Maps a file, also if mincore(2) is wrong for it. `layered` is true if it lies on overlayfs.
    pub(crate) fn new(fd: BorrowedFd<'_>, shape: &Shape, layered: bool) -> Result<Mapped, Failed> {
        Ok(Mapped::keep(Current::new(fd, shape, layered)?, layered))
    }

    /// As [`new`](Mapped::new), for a file of overlayfs that is open for reading only and had this change time before it
    /// was opened, which was past then. It is not opened again to be mapped, if it was not copied up since.
    pub(crate) fn of_opened(
        fd: BorrowedFd<'_>,
        shape: &Shape,
        changed_before: (i64, i64),
    ) -> Result<Mapped, Failed> {
        if changed_before != shape.changed {
            return Mapped::new(fd, shape, true);
        }
        let mut mapping = MappedRange::at_end(fd, shape.size, false)?;
        mapping.reopens = true;
        let valid = Valid::While(shape.changed);
        Ok(Mapped::keep(Current { mapping, valid }, true))
    }

    fn keep(current: Current, layered: bool) -> Mapped {
        let kept = Arc::new(RwLock::new(Some(current)));
        count(&kept);
        Mapped {
            kept,
            layered,
            checked: false,
        }
    }

    /// Returns this mapping if mincore is correct for it.
    pub(crate) fn checked(mut self) -> Result<Mapped, Reason> {
        if let Some(kept) = &*self.kept.read().unwrap_or_else(PoisonError::into_inner) {
            kept.mapping.check()?;
        }
        self.checked = true;
        Ok(self)
    }

    /// True if mincore reports every page as resident.
    pub(crate) fn is_untrustworthy(&self, fd: BorrowedFd<'_>) -> Result<bool, Errno> {
        let shape = stat::shape(fd)?;
        match self.with(fd, &shape, MappedRange::is_untrustworthy) {
            Ok(answer) => answer,
            // A new mapping was made, and mincore is wrong for it.
            Err(_) => Ok(true),
        }
    }

    /// Calls `look` with a mapping of the file that is read now. `shape` is the current shape of
    /// the file.
    ///
    /// # Errors
    /// The reason why the file cannot be mapped again, or mincore is wrong for the new mapping.
    pub(crate) fn with<T>(
        &self,
        fd: BorrowedFd<'_>,
        shape: &Shape,
        look: impl FnOnce(&MappedRange) -> T,
    ) -> Result<T, Reason> {
        if let Ok(kept) = self.kept.try_read()
            && let Some(kept) = &*kept
            && kept.is_valid(shape)
        {
            return Ok(look(&kept.mapping));
        }
        let kept = Current::new(fd, shape, self.layered)?;
        if self.checked {
            kept.mapping.check()?;
        }
        let looked = look(&kept.mapping);
        let old = match self.kept.try_write() {
            Ok(mut place) => place.replace(kept),
            Err(_) => return Ok(looked),
        };
        if old.is_none() {
            count(&self.kept);
        }
        Ok(looked)
    }
}

/// Counts a mapping among those that are kept. Unmaps the oldest if there are too many.
fn count(slot: &Arc<Slot>) {
    let Ok(kept) = KEPT.get_or_make(|| Ok::<_, Infallible>(Mutex::default()));
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.push_back(Arc::downgrade(slot));
    if kept.len() > MAX_KEPT
        && let Some(oldest) = kept.pop_front().and_then(|oldest| oldest.upgrade())
    {
        match oldest.try_write() {
            Ok(mut place) => drop(place.take()),
            // It is in use.
            Err(_) => kept.push_back(Arc::downgrade(&oldest)),
        }
    }
}

impl Current {
    fn new(fd: BorrowedFd<'_>, shape: &Shape, layered: bool) -> Result<Current, Failed> {
        if !layered {
            let mapping = MappedRange::at_end(fd, shape.size, false)?;
            let valid = Valid::Always;
            return Ok(Current { mapping, valid });
        }
        let access = stat::flags(fd).map_err(Failed::Map)? & OFlags::RWMODE;
        let valid = if access != OFlags::RDONLY {
            Valid::Always
        } else if is_past(shape.changed) {
            Valid::While(shape.changed)
        } else {
            Valid::Once
        };
        // A file that is open for reading and writing is mapped as it is.
        let mapping = MappedRange::at_end(fd, shape.size, access != OFlags::RDWR)?;
        Ok(Current { mapping, valid })
    }

    fn is_valid(&self, shape: &Shape) -> bool {
        match self.valid {
            Valid::Always => true,
            Valid::While(changed) => changed == shape.changed,
            Valid::Once => false,
        }
    }
}

/// Returns true if a file that is changed from now on gets another change time than this one, in
/// seconds and nanoseconds.
///
/// The kernel's clock for change times advances with each tick, which is 10 ms at most. Filesystems
/// that store whole seconds, or every second one, report 0 nanoseconds.
fn is_past(changed: (i64, i64)) -> bool {
    is_past_at(changed, SystemTime::now())
}

/// The same from this time on.
pub(crate) fn is_past_at((seconds, nanoseconds): (i64, i64), now: SystemTime) -> bool {
    let resolution = if nanoseconds == 0 {
        Duration::from_secs(2)
    } else {
        Duration::from_millis(10)
    };
    let (Ok(seconds), Ok(nanoseconds)) = (u64::try_from(seconds), u32::try_from(nanoseconds))
    else {
        // Before 1970.
        return true;
    };
    let changed = UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds));
    let age = changed.and_then(|changed| now.duration_since(changed).ok());
    // The kernel's clock for change times may be a tick behind this one.
    age.is_some_and(|age| age > resolution * 2)
}

impl MappedRange {
    /// Maps the whole file of `size` bytes, or its last `MAX_MAPPED` bytes, and room for growth.
    fn at_end(fd: BorrowedFd<'_>, size: u64, reopens: bool) -> Result<MappedRange, Failed> {
        let end = size
            .checked_next_multiple_of(page_size())
            .and_then(|end| end.checked_add(GROWTH))
            .ok_or(Failed::Map(Errno::OVERFLOW))?;
        MappedRange::new(fd, &(end.saturating_sub(MAX_MAPPED)..end), reopens)
    }

    /// Maps a file of `size` bytes that does not lie on overlayfs, if mincore(2) is correct for it.
    pub(crate) fn checked(fd: BorrowedFd<'_>, size: u64) -> Option<MappedRange> {
        let mapping = MappedRange::at_end(fd, size, false).ok()?;
        mapping.check().is_ok().then_some(mapping)
    }

    /// Maps some pages of a file that does not lie on overlayfs.
    pub(crate) fn of_pages(fd: BorrowedFd<'_>, pages: Range<u64>) -> Result<MappedRange, Failed> {
        let bytes = pages.start * page_size()..pages.end * page_size();
        MappedRange::new(fd, &bytes, false)
    }

    /// Maps these bytes, which are whole pages.
    fn new(fd: BorrowedFd<'_>, bytes: &Range<u64>, reopens: bool) -> Result<MappedRange, Failed> {
        let len = usize::try_from(bytes.end - bytes.start);
        let len = len.map_err(|_| Failed::Map(Errno::NOMEM))?;
        let fresh = reopens.then(|| reopen(fd)).transpose();
        let fresh = fresh.map_err(Failed::Open)?;
        let fd = fresh.as_ref().map_or(fd, |fresh| fresh.as_fd());
        Ok(MappedRange {
            start: bytes.start,
            mapping: Mapping::new(fd, bytes.start, len).map_err(Failed::Map)?,
            reopens,
        })
    }

    /// Fails if mincore(2) is wrong for the file.
    fn check(&self) -> Result<(), Reason> {
        match self.is_untrustworthy() {
            Ok(false) => Ok(()),
            Ok(true) => Err(Reason::NotOurs),
            Err(errno) => Err(Reason::NoCall(errno.raw_os_error())),
        }
    }

    /// Returns true if mincore(2) reports every page as resident, as it does for files that the
    /// caller neither owns nor may write. It then also does so for a page far beyond the end of the
    /// file, which cannot be resident.
    fn is_untrustworthy(&self) -> Result<bool, Errno> {
        let mut beyond = [0];
        let page = to_usize(page_size());
        let last = self.mapping.len() - page;
        self.mapping.mincore(last, page, &mut beyond)?;
        Ok(beyond[0] & 1 == 1)
    }

    /// Calls mincore(2): bit 0 of each byte is set if that page of the file is resident.
    pub(crate) fn look(
        &self,
        fd: BorrowedFd<'_>,
        pages: Range<u64>,
        resident: &mut [u8],
    ) -> Result<(), Errno> {
        let bytes = pages.start * page_size()..pages.end * page_size();
        if self.covers(&bytes) {
            return self.mincore(&bytes, resident);
        }
        match MappedRange::new(fd, &bytes, self.reopens) {
            Ok(mapping) => mapping.mincore(&bytes, resident),
            Err(Failed::Open(errno) | Failed::Map(errno)) => Err(errno),
        }
    }

    fn covers(&self, bytes: &Range<u64>) -> bool {
        self.start <= bytes.start && bytes.end <= self.start + self.mapping.len() as u64
    }

    fn mincore(&self, bytes: &Range<u64>, resident: &mut [u8]) -> Result<(), Errno> {
        let start = to_usize(bytes.start - self.start);
        let len = to_usize(bytes.end - bytes.start);
        self.mapping.mincore(start, len, resident)
    }
}
