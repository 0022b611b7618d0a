//! A slot for the waker of one future.
//!
//! A waker is code of the program. Its clone, drop and wake functions may do anything: take locks
//! of the program, cancel a scan, or drop the waiting future. None of them runs under the lock of
//! this slot. Their panics end in the thread that calls [`wake`](WakerSlot::wake).

use std::task::Waker;

use crate::foreign;
use crate::sync::{Mutex, lock};

/// The waker of the future that was polled last.
#[derive(Debug, Default)]
pub(crate) struct WakerSlot(Mutex<Option<Waker>>);

impl WakerSlot {
    /// Makes a slot that holds a waker already.
    pub(crate) fn new(waker: &Waker) -> WakerSlot {
        WakerSlot(Mutex::new(Some(waker.clone())))
    }

    /// Stores this waker. After this call a future checks again for the event that it waits for,
    /// because an earlier event woke the previous waker.
    pub(crate) fn register(&self, waker: &Waker) {
        // This compares two pointers, and runs no code of the program.
        let known = |held: &Waker| held.will_wake(waker);
        if lock(&self.0).as_ref().is_some_and(known) {
            return;
        }
        let waker = waker.clone();
        let previous = lock(&self.0).replace(waker);
        foreign::discard(previous);
    }

    /// Removes the waker.
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
        // Without the lock: in a forked child, a thread of the parent may have held it at the fork.
        let held = self.0.get_mut().unwrap_or_else(|e| e.into_inner());
        foreign::discard(held.take());
    }
}
