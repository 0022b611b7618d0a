//! A slot for the waker of one future.
//!
//! A waker is code of the program. Its clone, drop and wake functions may do anything: take locks
//! of the program, cancel a scan, or drop the waiting future. None of them runs under the lock of
//! this slot. Their panics end in the thread that calls [`wake`](WakerSlot::wake).

use std::task::Waker;

use crate::sys::sync::{Mutex, lock};
use crate::user_code;
use crate::user_code::paused_clock::Hold;

/// The waker of the future that was polled last. A paused clock is held until it is woken.
#[derive(Debug, Default)]
pub(crate) struct WakerSlot(Mutex<Option<(Waker, Hold)>>);

impl WakerSlot {
    /// Makes a slot that holds a waker already.
    pub(crate) fn new(waker: &Waker) -> WakerSlot {
        WakerSlot(Mutex::new(Some((waker.clone(), Hold::current()))))
    }

    /// Stores this waker. After this call a future checks again for the event that it waits for,
    /// because an earlier event woke the previous waker.
    pub(crate) fn register(&self, waker: &Waker) {
        // This compares two pointers, and runs no code of the program.
        let known = |(held, _): &(Waker, Hold)| held.will_wake(waker);
        if lock(&self.0).as_ref().is_some_and(known) {
            return;
        }
        let waker = (waker.clone(), Hold::current());
        let previous = lock(&self.0).replace(waker);
        user_code::discard(previous);
    }

    /// Removes the waker.
    pub(crate) fn clear(&self) {
        let previous = lock(&self.0).take();
        user_code::discard(previous);
    }

    /// Wakes the future, if it waits.
    pub(crate) fn wake(&self) {
        let waker = lock(&self.0).take();
        // The hold ends after the wake: the runtime has something to do before its clock goes on.
        if let Some((waker, _hold)) = waker {
            user_code::call(|| waker.wake());
        }
    }

    /// Removes the waker of a future that is gone, unless another thread is about to do so. It
    /// takes no lock that another thread may have held at a fork.
    pub(crate) fn forget(&self) {
        let previous = self.0.try_lock().ok().and_then(|mut held| held.take());
        user_code::discard(previous);
    }
}

impl Drop for WakerSlot {
    fn drop(&mut self) {
        // Without the lock: in a forked child, a thread of the parent may have held it at the fork.
        let held = self.0.get_mut().unwrap_or_else(|e| e.into_inner());
        user_code::discard(held.take());
    }
}
