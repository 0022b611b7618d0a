//! Counts of the borrowed frames. A frame holds a resident window of the budget.
//!
//! Borrowing must be cheap: a thread writes only to memory of its own, with plain stores. Each
//! thread has a count for each frame, of what it has borrowed.
//!
//! ```text
//!  borrower                               evictor, or a lease that is broken
//!  count += 1                             state := 0
//!  (compiler fence)                       membarrier(2): a full barrier on every thread
//!  state still the frame? ─no─► undo      count of any thread not 0? ─yes─► the frame is borrowed
//! ```
//! Either the borrower sees the new state, or the evictor sees the borrower's count.
//!
//! A frame that another thread may return is counted in memory that all threads share: it is
//! *held*.
//!
//! In a forked child the counts are wiped, and wrap if a borrow of the parent is dropped there. The
//! child does not read them: no window of its parent can be borrowed there.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering, compiler_fence, fence};

use crate::sys::sync::{Mutex, lock};
use crate::sys::wiped::{Wipe, Wiped};
use crate::sys::{Errno, membarrier};

/// The counts of all threads.
#[derive(Debug)]
pub(crate) struct Borrows {
    /// A number that no other `Borrows` of this process has or had.
    id: u64,
    frames: usize,
    /// Without membarrier(2), borrowers execute the barrier.
    fences: bool,
    threads: Mutex<Vec<Arc<Thread>>>,
    /// The number of borrows that any thread may return, by frame.
    held: Wiped<AtomicU64>,
}

/// The counts of one thread. Other threads read them.
#[derive(Debug)]
struct Thread {
    /// Each frame's count is at its number plus 1. The first place has the time of the thread's
    /// last use.
    counts: Wiped<Count>,
    /// False after the thread's end. Another thread may then continue the counts.
    is_used: AtomicBool,
}

/// The count of one frame in one thread. It is not divided between two cache lines.
#[derive(Debug, Default)]
#[repr(align(16))]
struct Count {
    /// The time of the last use. Later times are larger.
    used: AtomicU64,
    borrowed: AtomicU64,
}

// SAFETY: 0 is a valid number.
unsafe impl Wipe for Count {}

impl Count {
    fn is_borrowed(&self) -> bool {
        self.borrowed.load(Ordering::Acquire) != 0
    }
}

impl Thread {
    /// Returns true if nothing that was borrowed with these counts is still borrowed.
    fn is_idle(&self) -> bool {
        !self.counts.iter().any(Count::is_borrowed)
    }
}

/// The state of a frame, over all threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) borrowed: bool,
    /// The time of the last use.
    pub(crate) time: u64,
}

/// The number of the next `Borrows`.
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The counts that this thread used last, and the number of their `Borrows`.
    static LAST: Cell<(u64, NonNull<Count>)> = const { Cell::new((0, NonNull::dangling())) };
    /// All counts of this thread.
    static OWN: RefCell<Own> = const { RefCell::new(Own(Vec::new())) };
}

/// The counts of one thread, with the numbers of their `Borrows`.
struct Own(Vec<(u64, Arc<Thread>)>);

impl Drop for Own {
    fn drop(&mut self) {
        // From now on, this thread borrows nothing: `OWN` cannot be accessed any more.
        LAST.set((0, NonNull::dangling()));
        for (_, thread) in &self.0 {
            thread.is_used.store(false, Ordering::Release);
        }
    }
}

impl Borrows {
    /// Counts for this number of frames, or for none if the kernel or a sandbox denies memory that
    /// is wiped in a child.
    pub(crate) fn new(frames: usize) -> Borrows {
        let held = Wiped::new(frames).unwrap_or(Wiped::none());
        let frames = held.len();
        Borrows {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            frames,
            fences: membarrier::register().is_err(),
            threads: Mutex::new(Vec::new()),
            held,
        }
    }

    /// The number of frames.
    pub(crate) fn len(&self) -> usize {
        self.frames
    }

    /// The counts of the calling thread. `None` if there is no memory for them, or if the thread is
    /// ending.
    #[inline(always)]
    fn counts(&self) -> Option<NonNull<Count>> {
        let (id, counts) = LAST.get();
        if id == self.id {
            Some(counts)
        } else {
            self.find()
        }
    }

    #[cold]
    fn find(&self) -> Option<NonNull<Count>> {
        let found = OWN.try_with(|own| {
            let own = &mut own.borrow_mut().0;
            // Those of budgets that are gone.
            own.retain(|(_, thread)| Arc::strong_count(thread) > 1);
            if let Some((_, known)) = own.iter().find(|(id, _)| *id == self.id) {
                return Some(known.counts.start());
            }
            let new = self.thread().ok()?;
            let counts = new.counts.start();
            own.push((self.id, new));
            Some(counts)
        });
        let counts = found.ok().flatten()?;
        LAST.set((self.id, counts));
        Some(counts)
    }

    /// Counts for a thread that has none: those of a thread that has ended, or new ones.
    fn thread(&self) -> Result<Arc<Thread>, Errno> {
        let mut threads = lock(&self.threads);
        let unused = threads
            .iter()
            .find(|t| !t.is_used.load(Ordering::Acquire) && t.is_idle());
        if let Some(unused) = unused {
            unused.is_used.store(true, Ordering::Relaxed);
            return Ok(unused.clone());
        }
        let new = Arc::new(Thread {
            counts: Wiped::new(self.frames + 1)?,
            is_used: AtomicBool::new(true),
        });
        threads.push(new.clone());
        Ok(new)
    }

    /// The name of a frame in the state of its window: the position of its count in bytes, negative
    /// if borrowers have to execute a barrier. It is neither 0 nor `i32::MIN`.
    pub(crate) fn name(&self, frame: usize) -> i32 {
        let position = (frame + 1) * size_of::<Count>();
        let name = i32::try_from(position).unwrap_or(0);
        if self.fences { -name } else { name }
    }

    /// The frame that has this name.
    pub(crate) fn frame(name: i32) -> Option<usize> {
        (name.unsigned_abs() as usize / size_of::<Count>()).checked_sub(1)
    }

    /// Borrows the frame that `state` names. Returns `None` if it names none, or if it changes
    /// meanwhile.
    ///
    /// # Safety
    /// `state` names a frame of this `Borrows`, or is 0 or `i32::MIN`.
    #[inline(always)]
    pub(crate) unsafe fn take(&self, state: &AtomicI32) -> Option<Borrow> {
        let name = state.load(Ordering::Relaxed);
        if name > 0 {
            let counts = self.counts()?;
            // SAFETY: as the caller promises. The counts are valid while this `Borrows` exists.
            unsafe { count(counts, name, state, || compiler_fence(Ordering::SeqCst)) }
        } else {
            // SAFETY: as the caller promises.
            unsafe { self.take_fenced(state, name) }
        }
    }

    /// As [`take`](Borrows::take), if borrowers have to execute the barrier.
    #[cold]
    unsafe fn take_fenced(&self, state: &AtomicI32, name: i32) -> Option<Borrow> {
        if matches!(name, 0 | i32::MIN) {
            return None;
        }
        let counts = self.counts()?;
        // SAFETY: as the caller promises.
        unsafe { count(counts, name, state, || fence(Ordering::SeqCst)) }
    }

    /// Marks a frame as the one that was used last by any thread.
    pub(crate) fn touch(&self, frame: usize) {
        let Some(counts) = self.counts().filter(|_| frame < self.frames) else {
            return;
        };
        // The times of all threads go on from the latest one. A thread that borrows at this moment
        // may undo that, which makes its next uses seem older.
        let threads = lock(&self.threads);
        let times = threads.iter().map(|t| &t.counts[0].used);
        let latest = times.clone().map(|time| time.load(Ordering::Relaxed)).max();
        for time in times {
            time.store(latest.unwrap_or(0), Ordering::Relaxed);
        }
        // SAFETY: there is a count for each frame.
        let (thread, count) = unsafe { (counts.as_ref(), counts.add(frame + 1).as_ref()) };
        count.used.store(now(thread), Ordering::Relaxed);
    }

    /// Holds a frame that cannot be evicted meanwhile. [`release`](Borrows::release) returns it.
    pub(crate) fn hold(&self, frame: usize) {
        if let Some(held) = self.held.get(frame) {
            held.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a frame that was held.
    pub(crate) fn release(&self, frame: usize) {
        if let Some(held) = self.held.get(frame) {
            // The memory was read before it is returned.
            held.fetch_sub(1, Ordering::Release);
        }
    }

    fn is_held(&self, frame: usize) -> bool {
        let held = self.held.get(frame);
        held.is_some_and(|held| held.load(Ordering::Acquire) != 0)
    }

    /// After this, every borrower either is counted or sees states that were set before. Returns
    /// false if that cannot be had. Every frame must then be taken for borrowed.
    pub(crate) fn settle(&self) -> bool {
        fence(Ordering::SeqCst);
        self.fences || membarrier::barrier().is_ok()
    }

    /// The state of a frame. It counts as borrowed if it is held.
    pub(crate) fn of(&self, frame: usize) -> Use {
        let mut state = Use {
            borrowed: false,
            time: 0,
        };
        for count in lock(&self.threads)
            .iter()
            .filter_map(|t| t.counts.get(frame + 1))
        {
            state.borrowed |= count.is_borrowed();
            state.time = state.time.max(count.used.load(Ordering::Relaxed));
        }
        // The last, because a borrow may become held meanwhile, but never the other way round.
        state.borrowed |= self.is_held(frame);
        state
    }
}

/// Borrows the frame of this name, if `state` still has it after the barrier.
///
/// # Safety
/// The counts are those of the calling thread, and have a count at this position.
#[inline(always)]
unsafe fn count(
    counts: NonNull<Count>,
    name: i32,
    state: &AtomicI32,
    barrier: impl FnOnce(),
) -> Option<Borrow> {
    // SAFETY: as the caller promises.
    let (thread, count) = unsafe {
        let count = counts.byte_add(name.unsigned_abs() as usize);
        (counts.as_ref(), count)
    };
    let borrow = Borrow {
        count,
        thread: PhantomData,
    };
    borrow.count().used.store(now(thread), Ordering::Relaxed);
    add(&borrow.count().borrowed, 1, Ordering::Relaxed);
    barrier();
    if state.load(Ordering::Acquire) == name {
        Some(borrow)
    } else {
        // It is being evicted. The borrow is returned.
        None
    }
}

/// The time of a use by this thread.
#[inline(always)]
fn now(thread: &Count) -> u64 {
    add(&thread.used, 1, Ordering::Relaxed)
}

/// Changes a number that only the calling thread writes to.
#[inline(always)]
fn add(to: &AtomicU64, n: u64, ordering: Ordering) -> u64 {
    let sum = to.load(Ordering::Relaxed).wrapping_add(n);
    to.store(sum, ordering);
    sum
}

/// A borrowed frame, which the same thread returns. Its `Borrows` must outlive it.
#[derive(Debug)]
pub(crate) struct Borrow {
    count: NonNull<Count>,
    /// Only this thread writes to the count.
    thread: PhantomData<*const ()>,
}

impl Borrow {
    #[inline(always)]
    fn count(&self) -> &Count {
        // SAFETY: the count is part of a `Borrows`, which outlives this.
        unsafe { self.count.as_ref() }
    }
}

// SAFETY: a shared reference only reads the count.
unsafe impl Sync for Borrow {}

impl Drop for Borrow {
    #[inline(always)]
    fn drop(&mut self) {
        // The memory was read before it is returned.
        add(&self.count().borrowed, u64::MAX, Ordering::Release);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// An evictor that sees no borrow frees the frame for a moment. No borrower may have it
    /// meanwhile.
    #[test]
    fn an_evictor_sees_every_borrow() {
        let borrows = &Borrows::new(1);
        let state = &AtomicI32::new(borrows.name(0));
        let (freed, ended) = (&AtomicBool::new(false), &AtomicBool::new(false));
        let pause = || (0..20).for_each(|_| std::hint::spin_loop());
        // membarrier(2) takes milliseconds if the other thread's processor is emulated.
        let end = Instant::now() + Duration::from_secs(5);
        std::thread::scope(|s| {
            s.spawn(move || {
                let mut times = 0;
                while times < 200_000 && Instant::now() < end {
                    state.store(0, Ordering::Release);
                    if borrows.settle() && !borrows.of(0).borrowed {
                        freed.store(true, Ordering::SeqCst);
                        pause();
                        freed.store(false, Ordering::SeqCst);
                        times += 1;
                    }
                    state.store(borrows.name(0), Ordering::Release);
                    pause();
                }
                ended.store(true, Ordering::SeqCst);
            });
            while !ended.load(Ordering::Relaxed) {
                // SAFETY: the state has the frame's name, or is 0.
                if let Some(borrow) = unsafe { borrows.take(state) } {
                    assert!(!freed.load(Ordering::SeqCst));
                    pause();
                    assert!(!freed.load(Ordering::SeqCst));
                    drop(borrow);
                    pause();
                }
            }
        });
        assert!(!borrows.of(0).borrowed);
    }
}
