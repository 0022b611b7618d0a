//! The windows of one protected file, and the budget that they share.
#![allow(unsafe_code)]

use std::ops::{Range, RangeInclusive};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::borrows::{Borrow, Borrows};
use super::budget::Budget;
use super::frames::{Frames, Refused};
use super::lease::{self, Leased};
use super::protection::{self, Protection, Unavailable};
use super::resident::{Held, Resident, SendResident};
use super::windows::Windows;
use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::sys::Errno;
use crate::sys::cast::to_usize;
use crate::sys::reopen::reopen;
use crate::sys::uninit_slice::UninitSlice;

/// The windows of a protected file.
#[derive(Clone, Debug)]
pub(super) struct Mapped {
    pub(super) windows: Arc<Windows>,
    pub(super) frames: Arc<Frames>,
    /// None if the file needs no lease.
    lease: Option<Arc<Leased>>,
    file: File,
    /// The file may become longer, so that its end is not known.
    may_grow: bool,
}

/// The numbers of a mapping, from [`Mapping::stats`](crate::Mapping::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The bytes of resident windows now, and of private copies of windows that are still borrowed
    /// after the lease was broken.
    pub locked: u64,
    /// The number of windows that were loaded.
    pub loaded: u64,
    /// The number of windows that were released for others.
    pub evicted: u64,
    /// The number of windows that were copied because the lease was broken.
    pub copied: u64,
}

impl Mapped {
    /// Maps a file of this length, by a descriptor that is open for reading.
    pub(super) fn of(
        file: &File,
        fd: BorrowedFd<'_>,
        budget: &Budget,
        len: u64,
        may_grow: bool,
    ) -> std::result::Result<Mapped, Unavailable> {
        let window = budget.frames().window;
        let windows = match usize::try_from(len) {
            Ok(len) if len > 0 => Windows::new(fd, len, window).ok(),
            _ => None,
        };
        Ok(Mapped {
            windows: Arc::new(windows.ok_or(Unavailable::Unsupported)?),
            frames: budget.frames().clone(),
            lease: None,
            file: file.clone(),
            may_grow,
        })
    }

    #[inline(always)]
    pub(super) fn get(&self, range: Range<u64>) -> Option<Resident<'_>> {
        let windows = &*self.windows;
        let (start, end) = (to_usize(range.start), to_usize(range.end));
        if start >= end || end > windows.len() {
            return None;
        }
        // SAFETY: the file has the range, and its states name frames of this budget.
        let borrow = unsafe {
            let state = windows.borrowable(windows.at(start));
            self.frames.borrows.take(state)?
        };
        let others = if windows.are_together(start, end - 1) {
            None
        } else {
            // SAFETY: as above.
            Some(unsafe { self.others(windows.at(start) + 1..=windows.at(end - 1)) }?)
        };
        Some(Resident::new(windows.bytes_at(start, end), borrow, others))
    }

    /// Borrows further windows of a range.
    ///
    /// # Safety
    /// Each window contains a byte of the file.
    #[cold]
    unsafe fn others(&self, windows: RangeInclusive<usize>) -> Option<Box<[Borrow]>> {
        let borrows = windows.map(|window| {
            // SAFETY: as the caller promises.
            unsafe { self.frames.borrows.take(self.windows.borrowable(window)) }
        });
        borrows.collect()
    }

    /// Holds the windows of a range that is resident.
    pub(super) fn get_send(&self, range: Range<u64>) -> Option<SendResident<'_>> {
        let borrowed = self.get(range.clone())?;
        let mut held = Held::new(&self.frames);
        for window in self.windows_of(&range).ok()? {
            // Borrowed, so it keeps its frame. The state is 0 if the lease was broken, or in a
            // forked child.
            held.hold(Borrows::frame(self.windows.state(window))?);
        }
        drop(borrowed);
        Some(self.loaded(&range, held))
    }

    /// The windows of a range.
    fn windows_of(
        &self,
        range: &Range<u64>,
    ) -> std::result::Result<RangeInclusive<usize>, Refused> {
        let (start, end) = (to_usize(range.start), to_usize(range.end));
        if start >= end || end > self.windows.len() {
            return Err(Refused::Failed(Errno::INVAL));
        }
        Ok(self.windows.at(start)..=self.windows.at(end - 1))
    }

    /// Makes the windows of a range resident, and holds them.
    pub(super) fn load(&self, range: &Range<u64>) -> std::result::Result<Held, Refused> {
        let mut held = Held::new(&self.frames);
        for window in self.windows_of(range)? {
            held.take_over(self.frames.load(self.fd(), &self.windows, window)?);
        }
        Ok(held)
    }

    /// Makes the windows of a range resident, as many as fit into the budget.
    pub(super) fn prefetch(&self, range: &Range<u64>) {
        let fitting = to_usize(self.frames.limit) / self.frames.window;
        let windows = self.windows_of(range).into_iter().flatten();
        for window in windows.take(fitting.max(1)) {
            match self.frames.load(self.fd(), &self.windows, window) {
                Ok(frame) => self.frames.borrows.release(frame),
                Err(_) => return,
            }
        }
    }

    /// A descriptor of the file that is open for reading.
    fn fd(&self) -> BorrowedFd<'_> {
        let leased = self.lease.as_ref();
        leased.map_or(self.file.as_fd(), |lease| lease.as_fd())
    }

    /// The bytes of a range whose windows are held.
    pub(super) fn loaded(&self, range: &Range<u64>, held: Held) -> SendResident<'_> {
        let (start, end) = (to_usize(range.start), to_usize(range.end));
        SendResident::new(self.windows.bytes_at(start, end), held)
    }

    pub(super) fn stats(&self) -> Stats {
        let windows = &self.windows;
        Stats {
            locked: self.frames.locked_of(windows),
            loaded: windows.loaded.load(Ordering::Relaxed),
            evicted: windows.evicted.load(Ordering::Relaxed),
            copied: windows.copied.load(Ordering::Relaxed),
        }
    }

    /// Copies the bytes of a resident range, up to the end of the file. An ordinary read serves
    /// memory that only the kernel accesses.
    #[inline]
    pub(super) fn copy(&self, space: &mut UninitSlice<'_>, offset: u64) -> Option<usize> {
        let end = offset.checked_add(space.len() as u64)?;
        let end = match self.may_grow {
            true => end,
            false => end.min(self.windows.len() as u64),
        };
        if space.is_raw() {
            return None;
        }
        let bytes = self.get(offset..end)?;
        space.copy_from(&bytes).ok()?;
        Some(bytes.len())
    }
}

/// The error of a window that did not become resident.
pub(super) fn failed(file: &File, refused: Refused) -> Error {
    let error = match refused {
        Refused::Closed => Error::new("load", ErrorKind::Unprotected),
        Refused::NoRoom => Error::os("load", Errno::NOMEM),
        Refused::Failed(errno) => Error::os("load", errno),
    };
    error.on(file.handle().shared_path())
}

/// Protects a file against changes, and maps it.
pub(super) fn protected(
    file: &File,
    budget: &Budget,
) -> Result<std::result::Result<Mapped, Unavailable>> {
    let protection = match protection::of(file.as_fd()) {
        Ok(protection) => protection,
        Err(why) => return Ok(Err(why)),
    };
    // The file may grow or shrink before it has a lease.
    for _ in 0..3 {
        let len = file.len()?;
        let mapped = match protection {
            Protection::Immutable { may_grow } => {
                Mapped::of(file, file.as_fd(), budget, len, may_grow)
            }
            Protection::Lease => leased(file, budget, len),
        };
        if file.len()? == len {
            return Ok(mapped);
        }
    }
    Ok(Err(Unavailable::OpenForWriting))
}

/// Maps a file, and takes a lease of it.
fn leased(file: &File, budget: &Budget, len: u64) -> std::result::Result<Mapped, Unavailable> {
    let fd = reopen(file.as_fd()).map_err(protection::refused)?;
    let mut mapped = Mapped::of(file, fd.as_fd(), budget, len, false)?;
    mapped.lease = Some(lease::take(fd, &mapped.frames, &mapped.windows)?);
    Ok(mapped)
}
