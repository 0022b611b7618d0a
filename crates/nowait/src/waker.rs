//! A place for the waker of one future.
//!
//! A waker is the program's code. Its clone, its drop and its wake may do anything: take the
//! program's locks, cancel a scan, drop the very future that waits. So none of them runs under the
//! lock of this place, and their panics end at the thread that calls [`wake`](WakerSlot::wake).

use std::task::Waker;

use crate::foreign;
use crate::sync::{Mutex, lock};

/// Holds the waker of the future that was polled last.
#[derive(Debug, Default)]
pub(crate) struct WakerSlot(Mutex<Option<Waker>>);

impl WakerSlot {
    /// A slot that holds a waker already.
    pub(crate) fn new(waker: &Waker) -> WakerSlot {
        WakerSlot(Mutex::new(Some(waker.clone())))
    }

    /// Holds this waker from now on. A future calls this and then looks once more for what it waits
    /// for: what came before has woken the previous waker.
    pub(crate) fn register(&self, waker: &Waker) {
        // Compares two pointers and runs no code of the program.
        let known = |held: &Waker| held.will_wake(waker);
        if lock(&self.0).as_ref().is_some_and(known) {
            return;
        }
        let waker = waker.clone();
        let previous = lock(&self.0).replace(waker);
        foreign::discard(previous);
    }

    /// Holds none from now on.
    pub(crate) fn clear(&self) {
        let previous = lock(&self.0).take();
        foreign::discard(previous);
    }

    /// Wakes the future, if it waits.
    pub(crate) fn wake(&self) {
        let waker = lock(&self.0).take();
        if let Some(waker) = waker {
            foreign::call(|| waker.wake());
        }
    }
}

impl Drop for WakerSlot {
    fn drop(&mut self) {
        // Without the lock: in a forked child a thread that is not there may hold it.
        let held = self.0.get_mut().unwrap_or_else(|e| e.into_inner());
        foreign::discard(held.take());
    }
}
