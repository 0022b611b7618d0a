//! The resident windows of all mappings that share a budget. Each has a *frame*.
//!
//! ```text
//!  load ─► room? ─no─► evict the least recently used window ─► read, lock ─► resident
//!  a broken lease ─► close: each window is freed, or copied if it is borrowed
//! ```
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::borrows::Borrows;
use super::windows::{ABSENT, LOADING, Windows};
use crate::sys::Errno;
use crate::sys::mapping::{NotReplaced, Spare};
use crate::sys::process::Owner;
use crate::sys::sync::{Condvar, Mutex, lock, wait};

/// The frames of a budget. A frame holds one resident window.
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
    Resident(Window),
    /// A private copy of a window of a file that may change now, or a window that is given up.
    /// It is removed when it is no longer borrowed.
    Copied {
        window: Window,
        /// False if there may be a borrower that is not counted yet.
        settled: bool,
    },
}

/// One window of a file.
#[derive(Clone, Debug)]
pub(super) struct Window {
    windows: Arc<Windows>,
    index: usize,
    /// Another part of the program may have memory at its addresses now. They are given up for
    /// good.
    torn: bool,
}

impl Window {
    fn size(&self) -> u64 {
        self.windows.bytes(self.index).len() as u64
    }

    fn set(&self, state: i32) {
        self.windows.set(self.index, state);
    }

    /// Frees the memory of the window. Returns false if it is still locked.
    ///
    /// # Safety
    /// It is not borrowed, and its state prevents that.
    unsafe fn close(&self) -> bool {
        let bytes = self.windows.bytes(self.index);
        // SAFETY: as the caller promises.
        self.torn || unsafe { self.windows.region().close(bytes) }.is_ok()
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
        table.of(windows).map(|(_, window)| window.size()).sum()
    }

    /// Makes a window resident, and holds its frame, which is returned. Blocks while the file is
    /// read.
    pub(super) fn load(
        &self,
        fd: BorrowedFd<'_>,
        windows: &Arc<Windows>,
        index: usize,
    ) -> Result<usize, Refused> {
        let window = Window {
            windows: windows.clone(),
            index,
            torn: false,
        };
        match self.claim(&window)? {
            (frame, LOADING) => {
                let read = self.read_and_lock(fd, &window);
                self.finish_load(frame, window, read)
            }
            (frame, _) => Ok(frame),
        }
    }

    /// The frame of a window: held if the window is resident, otherwise a free one for the caller
    /// to load it. The second value is `LOADING` then, and the state of the resident window
    /// otherwise.
    fn claim(&self, window: &Window) -> Result<(usize, i32), Refused> {
        let size = window.size();
        let mut table = lock(&self.table);
        loop {
            if window.windows.is_closed() {
                return Err(Refused::Closed);
            }
            match window.windows.state(window.index) {
                ABSENT => {}
                LOADING => {
                    table = wait(&self.loaded, table);
                    continue;
                }
                name => {
                    // No window is evicted while the table is locked.
                    let frame = Borrows::frame(name).ok_or(Refused::NoRoom)?;
                    self.hold(frame);
                    return Ok((frame, name));
                }
            }
            let free = table.frames.iter().position(|f| matches!(f, Frame::Free));
            match free {
                Some(free) if table.locked + size <= self.limit => {
                    table.frames[free] = Frame::Loading;
                    table.locked += size;
                    window.set(LOADING);
                    return Ok((free, LOADING));
                }
                _ if self.evict(&mut table) => {}
                _ => return Err(Refused::NoRoom),
            }
        }
    }

    /// Stores a window that was loaded, and holds its frame. Frees the frame if loading failed.
    fn finish_load(
        &self,
        frame: usize,
        window: Window,
        read: Result<(), Refused>,
    ) -> Result<usize, Refused> {
        let mut table = lock(&self.table);
        self.loaded.notify_all();
        let refused = match read {
            Ok(()) if window.windows.is_closed() => Refused::Closed,
            Ok(()) => {
                self.hold(frame);
                window.set(self.borrows.name(frame));
                window.windows.loaded.fetch_add(1, Ordering::Relaxed);
                table.frames[frame] = Frame::Resident(window);
                return Ok(frame);
            }
            Err(refused) => refused,
        };
        window.set(ABSENT);
        // SAFETY: the window was never resident.
        unsafe { window.close() };
        table.free(frame, &window);
        Err(refused)
    }

    /// Holds a frame, which is the most recently used one then.
    fn hold(&self, frame: usize) {
        self.borrows.touch(frame);
        self.borrows.hold(frame);
    }

    /// Reads a window into memory, and locks it.
    fn read_and_lock(&self, fd: BorrowedFd<'_>, window: &Window) -> Result<(), Refused> {
        let region = window.windows.region();
        let bytes = window.windows.bytes(window.index);
        loop {
            let read = region.populate(fd, bytes.clone());
            match read.and_then(|()| region.lock(bytes.clone())) {
                Ok(()) => return Ok(()),
                // A limit of the process is lower than the budget: of locked memory, or of
                // mappings.
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
            let Frame::Resident(window) = table.frames[number].clone() else {
                return false;
            };
            window.set(ABSENT);
            if !self.borrows.settle() || self.borrows.of(number).borrowed {
                // It was borrowed a moment ago.
                window.set(self.borrows.name(number));
                return false;
            }
            // SAFETY: the window is not borrowed, and its state prevents that.
            if !unsafe { window.close() } {
                // It is as it was.
                window.set(self.borrows.name(number));
                return false;
            }
            table.free(number, &window);
            window.windows.evicted.fetch_add(1, Ordering::Relaxed);
            true
        })
    }

    /// Ends the use of a file that may change from now on: no window can be borrowed any more.
    /// Windows that are borrowed are replaced by private copies. Returns the number of borrowed
    /// windows that are still part of the file: it must not change until another call returns 0. A
    /// copy uses up the spare mappings, and makes some if there are none.
    pub(super) fn close(
        &self,
        fd: BorrowedFd<'_>,
        windows: &Arc<Windows>,
        spare: &mut Option<Spare>,
    ) -> usize {
        let mut table = lock(&self.table);
        windows.close();
        let own: Vec<_> = table
            .of(windows)
            .filter(|(number, _)| matches!(table.frames[*number], Frame::Resident(_)))
            .map(|(number, window)| (number, window.clone()))
            .collect();
        own.iter().for_each(|(_, window)| window.set(ABSENT));
        let settled = self.borrows.settle();
        let mut left = 0;
        for (number, mut window) in own {
            if !settled || self.borrows.of(number).borrowed {
                let bytes = windows.bytes(window.index);
                let spare = spare.take().map_or_else(Spare::new, Ok);
                let replaced = spare.map_err(NotReplaced::from).and_then(|spare| {
                    // SAFETY: the window is open. The file does not change before this function
                    // returns 0.
                    unsafe { windows.region().replace_by_copy(fd, bytes, spare) }
                });
                match replaced {
                    Ok(()) => {
                        windows.copied.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(NotReplaced::Kept) => {
                        left += 1;
                        continue;
                    }
                    Err(NotReplaced::Torn) => window.torn = true,
                }
            }
            table.frames[number] = Frame::Copied { window, settled };
        }
        self.sweep_table(&mut table);
        let torn = table.of(windows).filter(|(_, window)| window.torn);
        left + torn.count()
    }

    /// Frees the copies that are no longer borrowed. Returns the number of copies that remain.
    pub(super) fn sweep(&self) -> usize {
        let mut table = lock(&self.table);
        self.sweep_table(&mut table);
        let copies = table.frames.iter();
        copies.filter(|f| matches!(f, Frame::Copied { .. })).count()
    }

    fn sweep_table(&self, table: &mut Table) -> usize {
        let mut frames = table.frames.iter();
        let unsettled = frames.any(|f| matches!(f, Frame::Copied { settled: false, .. }));
        // If membarrier(2) is denied, these copies stay until their mapping is dropped.
        let settles = unsettled && self.borrows.settle();
        let mut freed = 0;
        for number in 0..table.frames.len() {
            if let Frame::Copied { window, settled } = &table.frames[number]
                && (*settled || settles)
                && !self.borrows.of(number).borrowed
                // SAFETY: the window is not borrowed. No window of its file can be borrowed any
                // more.
                && unsafe { window.close() }
            {
                let window = window.clone();
                table.free(number, &window);
                freed += 1;
            }
        }
        freed
    }

    /// Ends the use of a mapping that is dropped: nothing refers to its memory. A frame whose
    /// borrow was leaked stays in use.
    pub(super) fn release(&self, windows: &Arc<Windows>) {
        let mut table = lock(&self.table);
        windows.close();
        let own: Vec<_> = table
            .of(windows)
            .map(|(n, window)| (n, window.clone()))
            .collect();
        for (number, window) in own {
            window.set(ABSENT);
            // SAFETY: a mapping outlives its borrows. What a worker holds for a future that was
            // dropped is not read.
            unsafe { window.close() };
            // Its borrowers have returned what they had before it was dropped, so they are counted.
            let settled = true;
            table.frames[number] = Frame::Copied { window, settled };
        }
        self.sweep_table(&mut table);
    }
}

impl Table {
    /// Frees the frame of a window.
    fn free(&mut self, number: usize, window: &Window) {
        self.frames[number] = Frame::Free;
        self.locked -= window.size();
    }

    /// The resident windows of a file, and the copies of them.
    fn of(&self, windows: &Arc<Windows>) -> impl Iterator<Item = (usize, &Window)> {
        let frames = self.frames.iter().enumerate();
        frames.filter_map(move |(number, frame)| match frame {
            Frame::Resident(window) | Frame::Copied { window, .. } => {
                Arc::ptr_eq(&window.windows, windows).then_some((number, window))
            }
            _ => None,
        })
    }
}
