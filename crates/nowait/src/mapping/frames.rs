//! The resident windows of all mappings that share a budget. Each has a *frame*.
//!
//! ```text
//!  load ─► room? ─no─► evict the least recently used window ─► map, populate, lock ─► resident
//!  a broken lease ─► close: each window is unmapped, or copied if it is borrowed
//! ```
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::borrows::Borrows;
use super::windows::{ABSENT, LOADING, Windows};
use crate::sync::{Condvar, Mutex, lock, wait};
use crate::sys::Errno;
use crate::sys::process::Owner;

/// The frames of a budget. A frame is the place of one resident window.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The size of a window in bytes, a power of two.
    pub(super) window: usize,
    /// The maximum number of locked bytes.
    pub(super) limit: u64,
    pub(super) borrows: Borrows,
    /// A forked child must not use the locks.
    pub(super) process: Owner,
    table: Mutex<Table>,
    /// A window is no longer being loaded.
    loaded: Condvar,
}

#[derive(Debug)]
struct Table {
    frames: Vec<Frame>,
    /// The bytes of all windows that have a frame.
    locked: u64,
}

#[derive(Clone, Debug)]
enum Frame {
    Free,
    Loading,
    Resident(Place),
    /// A private copy of a window of a file that may change now, or a window of a mapping that is gone.
    /// It is removed when it is no longer borrowed.
    Copied(Place),
}

/// One window of a file.
#[derive(Clone, Debug)]
pub(super) struct Place {
    windows: Arc<Windows>,
    window: usize,
}

impl Place {
    fn size(&self) -> u64 {
        self.windows.bytes(self.window).len() as u64
    }

    fn set(&self, state: i32) {
        self.windows.set(self.window, state);
    }

    /// Unmaps the window.
    ///
    /// # Safety
    /// It is not borrowed, and its state prevents that.
    unsafe fn unmap(&self) {
        let bytes = self.windows.bytes(self.window);
        // SAFETY: as the caller promises. If it fails, the addresses stay in use until the region is
        // unmapped.
        let _ = unsafe { self.windows.region().unmap(bytes) };
    }
}

/// The reason why a window did not become resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The file may change.
    Closed,
    /// The budget is used up by borrowed windows, or nothing can be locked.
    NoRoom,
    Failed(Errno),
}

impl Frames {
    pub(super) fn new(window: usize, limit: u64, frames: usize) -> Frames {
        let borrows = Borrows::new(frames);
        let frames = borrows.len();
        Frames {
            window,
            limit: if frames == 0 { 0 } else { limit },
            borrows,
            process: Owner::current(),
            table: Mutex::new(Table {
                frames: (0..frames).map(|_| Frame::Free).collect(),
                locked: 0,
            }),
            loaded: Condvar::new(),
        }
    }

    /// The bytes of all resident windows, and of the copies of borrowed ones.
    pub(super) fn locked(&self) -> u64 {
        lock(&self.table).locked
    }

    /// The bytes of the resident windows of one file, and of the copies of borrowed ones.
    pub(super) fn locked_of(&self, windows: &Arc<Windows>) -> u64 {
        let table = lock(&self.table);
        table.of(windows).map(|(_, place)| place.size()).sum()
    }

    /// Makes a window resident, and holds its frame, which is returned. Blocks while the file is read.
    pub(super) fn load(
        &self,
        fd: BorrowedFd<'_>,
        windows: &Arc<Windows>,
        window: usize,
    ) -> Result<usize, Refused> {
        let place = Place {
            windows: windows.clone(),
            window,
        };
        let size = place.size();
        let mut table = lock(&self.table);
        let frame = loop {
            if windows.is_closed() {
                return Err(Refused::Closed);
            }
            match windows.state(window) {
                ABSENT => {}
                LOADING => {
                    table = wait(&self.loaded, table);
                    continue;
                }
                name => {
                    // No window is evicted while the table is locked.
                    let frame = Borrows::frame(name).ok_or(Refused::NoRoom)?;
                    self.hold(frame);
                    return Ok(frame);
                }
            }
            let free = table.frames.iter().position(|f| matches!(f, Frame::Free));
            match free {
                Some(free) if table.locked + size <= self.limit => break free,
                _ if self.evict(&mut table) => {}
                _ => return Err(Refused::NoRoom),
            }
        };
        table.frames[frame] = Frame::Loading;
        table.locked += size;
        place.set(LOADING);
        drop(table);

        let result = self.map_and_lock(fd, &place);
        let mut table = lock(&self.table);
        self.loaded.notify_all();
        let refused = match result {
            Ok(()) if windows.is_closed() => Refused::Closed,
            Ok(()) => {
                self.hold(frame);
                place.set(self.borrows.name(frame));
                windows.loaded.fetch_add(1, Ordering::Relaxed);
                table.frames[frame] = Frame::Resident(place);
                return Ok(frame);
            }
            Err(refused) => refused,
        };
        place.set(ABSENT);
        self.free(&mut table, frame, &place);
        Err(refused)
    }

    /// Holds a frame, which is the most recently used one then.
    fn hold(&self, frame: usize) {
        self.borrows.touch(frame);
        self.borrows.hold(frame);
    }

    /// Maps a window, reads it, and locks it.
    fn map_and_lock(&self, fd: BorrowedFd<'_>, place: &Place) -> Result<(), Refused> {
        let region = place.windows.region();
        let bytes = place.windows.bytes(place.window);
        // SAFETY: the window is not resident, so nothing is borrowed of it.
        unsafe { region.map(fd, bytes.clone()) }.map_err(Refused::Failed)?;
        region.populate(bytes.clone()).map_err(Refused::Failed)?;
        loop {
            match region.lock(bytes.clone()) {
                Ok(()) => return Ok(()),
                // The limit of the process is lower than the budget.
                Err(Errno::NOMEM | Errno::AGAIN | Errno::PERM) => {
                    if !self.evict(&mut lock(&self.table)) {
                        return Err(Refused::NoRoom);
                    }
                }
                Err(errno) => return Err(Refused::Failed(errno)),
            }
        }
    }

    /// Evicts the least recently used window that is not borrowed. Returns false if there is none.
    fn evict(&self, table: &mut Table) -> bool {
        if self.sweep_table(table) > 0 {
            return true;
        }
        let resident = table.frames.iter().enumerate();
        let resident = resident.filter(|(_, frame)| matches!(frame, Frame::Resident(_)));
        let uses = resident.map(|(number, _)| (self.borrows.of(number), number));
        let idle = uses.filter(|(of, _)| !of.borrowed);
        let mut idle: Vec<_> = idle.map(|(of, number)| (of.time, number)).collect();
        idle.sort_unstable();
        idle.into_iter().any(|(_, number)| {
            let Frame::Resident(place) = table.frames[number].clone() else {
                return false;
            };
            place.set(ABSENT);
            if !self.borrows.settle() || self.borrows.of(number).borrowed {
                // It was borrowed a moment ago.
                place.set(self.borrows.name(number));
                return false;
            }
            self.free(table, number, &place);
            place.windows.evicted.fetch_add(1, Ordering::Relaxed);
            true
        })
    }

    /// Unmaps a window that is not borrowed, and frees its frame.
    fn free(&self, table: &mut Table, number: usize, place: &Place) {
        // SAFETY: the window is not borrowed, and its state prevents that.
        unsafe { place.unmap() };
        table.frames[number] = Frame::Free;
        table.locked -= place.size();
    }

    /// Ends the use of a file that may change from now on: no window can be borrowed any more. Windows that
    /// are borrowed are replaced by private copies. Returns the number of borrowed windows for which there
    /// was no memory: the file must not change until another call returns 0.
    pub(super) fn close(&self, fd: BorrowedFd<'_>, windows: &Arc<Windows>) -> usize {
        let mut table = lock(&self.table);
        windows.close();
        let own: Vec<_> = table
            .of(windows)
            .filter(|(number, _)| matches!(table.frames[*number], Frame::Resident(_)))
            .map(|(number, place)| (number, place.clone()))
            .collect();
        own.iter().for_each(|(_, place)| place.set(ABSENT));
        let settled = self.borrows.settle();
        let mut left = 0;
        for (number, place) in own {
            if settled && !self.borrows.of(number).borrowed {
                self.free(&mut table, number, &place);
                continue;
            }
            let bytes = windows.bytes(place.window);
            // SAFETY: the window is mapped. The file does not change before this function returns 0.
            match unsafe { windows.region().replace_by_copy(fd, bytes) } {
                Ok(()) => {
                    table.frames[number] = Frame::Copied(place);
                    windows.copied.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => left += 1,
            }
        }
        left
    }

    /// Frees the copies that are no longer borrowed. Returns the number of copies that remain.
    pub(super) fn sweep(&self) -> usize {
        let mut table = lock(&self.table);
        self.sweep_table(&mut table);
        let copies = table.frames.iter();
        copies.filter(|f| matches!(f, Frame::Copied(_))).count()
    }

    fn sweep_table(&self, table: &mut Table) -> usize {
        let mut freed = 0;
        for number in 0..table.frames.len() {
            if let Frame::Copied(place) = &table.frames[number]
                && !self.borrows.of(number).borrowed
            {
                let place = place.clone();
                self.free(table, number, &place);
                freed += 1;
            }
        }
        freed
    }

    /// Ends the use of a mapping that is dropped: nothing refers to its memory. A frame whose borrow was
    /// leaked stays in use.
    pub(super) fn release(&self, windows: &Arc<Windows>) {
        let mut table = lock(&self.table);
        windows.close();
        let own: Vec<_> = table
            .of(windows)
            .map(|(n, place)| (n, place.clone()))
            .collect();
        for (number, place) in own {
            place.set(ABSENT);
            // SAFETY: a mapping outlives its borrows. What a worker holds for a future that was dropped is
            // not read.
            unsafe { place.unmap() };
            table.frames[number] = Frame::Copied(place);
        }
        self.sweep_table(&mut table);
    }
}

impl Table {
    /// The resident windows of a file, and the copies of them.
    fn of(&self, windows: &Arc<Windows>) -> impl Iterator<Item = (usize, &Place)> {
        let frames = self.frames.iter().enumerate();
        frames.filter_map(move |(number, frame)| match frame {
            Frame::Resident(place) | Frame::Copied(place) => {
                Arc::ptr_eq(&place.windows, windows).then_some((number, place))
            }
            _ => None,
        })
    }
}
