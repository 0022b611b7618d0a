//! Files registered with a ring: a table of slots, filled and cleared by the thread that drives the
//! ring.
//!
//! ```text
//!  insert(handle) ─► Handle with a Slot ──► its operations also hold the slot
//!        │ Set                                     │ the last of them is dropped
//!        ▼                                         ▼ Clear
//!      changes ──────────────────────────────► applied by the ring's thread, in order
//! ```
//!
//! A slot has at most one pending change, the last one. A Set replaces a Clear, because the ring
//! releases a slot's file when the slot gets another one. A slot number may therefore be reused as
//! soon as its Clear is queued. Operations on the new file use its descriptor until the new Set is
//! applied.

use std::collections::HashMap;
use std::fmt::Debug;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Weak};

use io_uring::Submitter;

use crate::error::{Error, ErrorKind, Result};
use crate::sys::process::Owner;
use crate::sys::sync::atomic::{AtomicBool, Ordering};
use crate::sys::sync::{Mutex, lock};

/// An open file that a slot can hold.
pub(crate) trait OpenFile: AsFd + Debug + Send + Sync {}

/// The thread that applies changes made by other threads.
pub(crate) trait Notified: Debug + Send + Sync {
    /// Called after the first change since the last [`Table::apply`].
    fn files_changed(&self);
}

/// The slots of one set.
#[derive(Debug)]
pub(crate) struct Table {
    state: Mutex<State>,
    /// True if there are changes. The ring's thread reads it without the lock.
    changed: AtomicBool,
    /// The owner of a shared engine, which is notified of changes. A local engine polls for them.
    owner: Option<Weak<dyn Notified>>,
    capacity: u32,
    process: Owner,
}

#[derive(Debug)]
struct State {
    free: Vec<u32>,
    /// The last change of each slot that is not yet applied.
    changes: HashMap<u32, Change>,
    /// True if the ring is gone or refused the table. Slots are still handed out, but never filled.
    closed: bool,
}

#[derive(Debug)]
enum Change {
    /// Holds the file, so that its descriptor stays open until the change is applied.
    Set(Arc<dyn OpenFile>, Weak<Slot>),
    Clear,
}

/// One file's slot in a set. It is released when the last handle with it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    table: Arc<Table>,
    index: u32,
    /// True if the ring has the file.
    set: AtomicBool,
}

/// The kernel's limit of registered files (`IORING_MAX_FIXED_FILES`).
const MAX_FILES: u32 = 1 << 20;

impl Table {
    /// Makes a table with `capacity` slots. `InvalidInput` if that is 0 or more than the kernel
    /// allows.
    pub(crate) fn new(capacity: usize, owner: Option<Weak<dyn Notified>>) -> Result<Arc<Table>> {
        let capacity = u32::try_from(capacity)
            .ok()
            .filter(|n| (1..=MAX_FILES).contains(n));
        let capacity = capacity.ok_or(Error::new("file_set", ErrorKind::InvalidInput))?;
        Ok(Arc::new(Table {
            state: Mutex::new(State {
                free: (0..capacity).rev().collect(),
                changes: HashMap::new(),
                closed: false,
            }),
            changed: AtomicBool::new(false),
            owner,
            capacity,
            process: Owner::current(),
        }))
    }

    /// Takes a free slot for an open file.
    pub(crate) fn insert(self: &Arc<Table>, file: Arc<dyn OpenFile>) -> Result<Arc<Slot>> {
        if !self.process.is_here() {
            return Err(Error::new("file_set", ErrorKind::Forked));
        }
        let index = lock(&self.state).free.pop();
        let index = index.ok_or(Error::new("file_set", ErrorKind::SetFull))?;
        let slot = Arc::new(Slot {
            table: self.clone(),
            index,
            set: AtomicBool::new(false),
        });
        let set = Change::Set(file, Arc::downgrade(&slot));
        let (previous, first) = self.change(&mut lock(&self.state), index, set);
        // Dropped without the lock, because this may close a file.
        drop(previous);
        self.tell(first);
        Ok(slot)
    }

    /// The number of free slots.
    pub(crate) fn free(&self) -> usize {
        if !self.process.is_here() {
            return 0;
        }
        lock(&self.state).free.len()
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Records a change of a slot. Returns the change that it replaces, and true if the ring's
    /// thread has to be notified.
    fn change(&self, state: &mut State, index: u32, change: Change) -> (Option<Change>, bool) {
        if state.closed {
            return (Some(change), false);
        }
        let previous = state.changes.insert(index, change);
        (previous, !self.changed.swap(true, Ordering::Release))
    }

    fn tell(&self, news: bool) {
        if news && let Some(owner) = self.owner.as_ref().and_then(Weak::upgrade) {
            owner.files_changed();
        }
    }

    /// Releases a slot.
    fn release(&self, index: u32) {
        let (previous, news) = {
            let mut state = lock(&self.state);
            let changed = self.change(&mut state, index, Change::Clear);
            // The number is freed after the change was recorded: the next use of the slot replaces
            // this change.
            state.free.push(index);
            changed
        };
        // Dropped without the lock, because this may close the file.
        drop(previous);
        self.tell(news);
    }

    /// Returns true if there are changes for the ring's thread to apply.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed) && self.changed.swap(false, Ordering::Acquire)
    }

    /// The number of changes that the ring's thread has not applied.
    #[cfg(test)]
    pub(crate) fn changes(&self) -> usize {
        lock(&self.state).changes.len()
    }

    /// Applies all changes. Called only on the ring's thread.
    pub(crate) fn apply(&self, ring: &Submitter<'_>) {
        self.apply_by(|index, fd| ring.register_files_update(index, &[fd]).is_ok());
    }

    /// Applies all changes. `update` sets a slot to a descriptor, or clears it (−1), and returns
    /// true on success.
    fn apply_by(&self, mut update: impl FnMut(u32, i32) -> bool) {
        let changes = std::mem::take(&mut lock(&self.state).changes);
        for (index, change) in changes {
            match change {
                Change::Set(file, slot) => {
                    let Some(slot) = slot.upgrade() else { continue };
                    let fd = file.as_fd().as_raw_fd();
                    // A file that cannot be registered (the descriptor of a ring) is used by its
                    // descriptor.
                    let set = update(index, fd);
                    if !set {
                        // The slot must not keep the previous file.
                        update(index, -1);
                    }
                    slot.set.store(set, Ordering::Release);
                }
                Change::Clear => {
                    update(index, -1);
                }
            }
        }
    }

    /// Closes the table: the ring is gone or refused it, and no more changes are applied.
    pub(crate) fn close(&self) {
        let unapplied = {
            let mut state = lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.changes)
        };
        drop(unapplied);
    }
}

impl Slot {
    /// The slot's number on the ring of this table, once the ring has the file.
    pub(crate) fn number(&self, table: &Arc<Table>) -> Option<u32> {
        let known = Arc::ptr_eq(&self.table, table) && self.set.load(Ordering::Acquire);
        known.then_some(self.index)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // In a forked child the table is not used, and a thread of the parent may have held its
        // lock at the fork.
        if self.table.process.is_here() {
            self.table.release(self.index);
        }
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use super::*;

    impl OpenFile for std::fs::File {}

    const SCHEDULES: usize = 5_000;

    /// Two threads put files into a set of one slot and remove them, while the ring's thread
    /// applies the changes. A slot is used only while the ring holds its file.
    fn a_slot_is_its_files() {
        let set = Table::new(1, None).unwrap();
        let ring = Arc::new(Mutex::new(-1));
        let over = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (set, ring) = (set.clone(), ring.clone());
                shuttle::thread::spawn(move || {
                    for _ in 0..2 {
                        let file = Arc::new(std::fs::File::open("/dev/null").unwrap());
                        let Ok(slot) = set.insert(file.clone()) else {
                            continue;
                        };
                        crate::sys::sync::yield_now();
                        if slot.number(&set).is_some() {
                            assert_eq!(*lock(&ring), file.as_fd().as_raw_fd());
                        }
                    }
                })
            })
            .collect();
        let owner = {
            let (set, ring, over) = (set.clone(), ring.clone(), over.clone());
            shuttle::thread::spawn(move || {
                let apply = || {
                    if set.has_changed() {
                        set.apply_by(|_, fd| {
                            *lock(&ring) = fd;
                            true
                        });
                    }
                };
                while !over.load(Ordering::SeqCst) {
                    apply();
                    crate::sys::sync::yield_now();
                }
                apply();
            })
        };
        threads.into_iter().for_each(|t| t.join().unwrap());
        over.store(true, Ordering::SeqCst);
        owner.join().unwrap();
        assert_eq!((set.free(), *lock(&ring)), (1, -1));
    }

    #[test]
    fn a_slot_is_used_only_while_the_ring_holds_its_file() {
        shuttle::check_random(a_slot_is_its_files, SCHEDULES);
        shuttle::check_pct(a_slot_is_its_files, SCHEDULES, 3);
    }
}
