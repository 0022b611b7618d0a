//! Events that the main thread passes to the keeper.

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nowait_page_cache::Stop;

/// More changed names than this count as an overflow of the kernel's queue.
const MAX_CHANGED: usize = 1 << 16;

/// The events that were not taken yet.
#[derive(Debug, Default)]
pub struct Events {
    /// The numbers of watches, and the names that changed in their directories.
    pub changed: HashSet<(i32, OsString)>,
    /// The watches that the kernel has ended.
    pub ended: Vec<i32>,
    /// Events were lost.
    pub overflowed: bool,
    /// The kernel reports memory pressure.
    pub pressure: bool,
    /// Less memory is available than is left to other programs.
    pub memory: bool,
    /// SIGHUP: the paths are to be read again.
    pub reload: bool,
    /// SIGTERM or SIGINT.
    pub stop: bool,
}

impl Events {
    /// A name has changed in the directory of a watch.
    pub fn changed(&mut self, watch: i32, name: OsString) {
        if self.changed.len() < MAX_CHANGED {
            self.changed.insert((watch, name));
        } else {
            self.overflow();
        }
    }

    /// Events were lost: a sweep is needed, and the names are found by it.
    pub fn overflow(&mut self) {
        self.changed.clear();
        self.overflowed = true;
    }

    /// Adds later events.
    pub fn add(&mut self, more: Events) {
        for (watch, name) in more.changed {
            self.changed(watch, name);
        }
        self.ended.extend(more.ended);
        if more.overflowed {
            self.overflow();
        }
        self.pressure |= more.pressure;
        self.memory |= more.memory;
        self.reload |= more.reload;
        self.stop |= more.stop;
    }

    fn is_empty(&self) -> bool {
        let events = self.changed.is_empty() && self.ended.is_empty() && !self.overflowed;
        events && !self.pressure && !self.memory && !self.reload && !self.stop
    }
}

/// Events, and the means to wait for them.
#[derive(Default)]
pub struct EventQueue {
    events: Mutex<Events>,
    /// The work that ends early if there is pressure, or at the end of the program.
    work: Mutex<Stop>,
    arrived: Condvar,
}

impl EventQueue {
    fn lock(&self) -> MutexGuard<'_, Events> {
        // A panic cannot leave the events inconsistent.
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds events.
    pub fn post(&self, add: impl FnOnce(&mut Events)) {
        add(&mut self.lock());
        self.arrived.notify_one();
    }

    /// Ends the keeper's work early. The event that is the reason was posted before.
    pub fn interrupt(&self) {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.request();
    }

    /// The request that [`interrupt`](EventQueue::interrupt) makes from now on.
    pub fn new_work(&self) -> Stop {
        let stop = Stop::default();
        *self.work.lock().unwrap_or_else(PoisonError::into_inner) = stop.clone();
        let events = self.lock();
        if events.pressure || events.memory || events.stop {
            // The reason was posted, and the request before this one was interrupted.
            stop.request();
        }
        stop
    }

    /// Takes all events. Waits for some, at most for this time.
    pub fn take(&self, wait: Duration) -> Events {
        let events = self.lock();
        let waited = self
            .arrived
            .wait_timeout_while(events, wait, |events| events.is_empty());
        let (mut events, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut events)
    }
}
