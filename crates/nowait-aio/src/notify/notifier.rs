//! The notifier: a thread that starts the threads of SIGEV_THREAD, and retries signals for which
//! the queue had no room.
//!
//! The driver cannot start these threads: they would share its descriptor table, which is not the
//! program's.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::notification_slot::NotificationSlot;
use crate::notify::notification::Notification;
use crate::sys::thread;
use crate::wait;

/// The time after which a notification is dropped. It is long, because a program may wait for it
/// forever.
const RETRY_LIMIT: Duration = Duration::from_secs(10);
/// The time between two tries.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

#[derive(Debug, Default)]
pub struct Notifier {
    state: Mutex<State>,
    added: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pending: Vec<Pending>,
    /// Slots of notifications that were sent, for reuse.
    idle_slots: Vec<&'static NotificationSlot>,
    is_started: bool,
}

/// The notifications of a request and of its list that are still to be sent, and their slot, if
/// there is one.
#[derive(Debug)]
struct Pending {
    slot: Option<&'static NotificationSlot>,
    notifications: [Notification; 2],
    /// The time at which they are dropped.
    deadline: Instant,
}

impl Pending {
    /// Tries to send them. Returns true if nothing is left to send. While the signal queue is full
    /// no signal is tried, so that signals stay in order.
    fn try_send(&mut self, signal_queue_is_full: &mut bool) -> bool {
        let is_expired = Instant::now() >= self.deadline;
        let has_no_thread = !self.notifications.iter().any(Notification::is_thread);
        if *signal_queue_is_full && !is_expired && has_no_thread {
            return false;
        }
        if let Some(slot) = self.slot {
            slot.set_sending();
        }
        for notification in &mut self.notifications {
            if notification.is_signal() && *signal_queue_is_full {
                continue;
            }
            if notification.send() == Err(Errno::AGAIN) {
                *signal_queue_is_full |= notification.is_signal();
            } else {
                *notification = Notification::None;
            }
        }
        let is_finished = is_expired || self.notifications.iter().all(Notification::is_none);
        if let Some(slot) = self.slot {
            if is_finished {
                slot.set_finished();
            } else {
                slot.set_delayed();
            }
            wait::wake_all();
        }
        is_finished
    }
}

impl Notifier {
    /// Starts the thread, the first time. The calling thread must use the program's descriptor
    /// table.
    pub fn ensure_started(&'static self) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        if !state.is_started {
            thread::start_with_signals_blocked(move || self.run())?;
            state.is_started = true;
        }
        Ok(())
    }

    /// A slot that no notification uses.
    pub fn idle_slot(&self) -> &'static NotificationSlot {
        let idle = lock(&self.state).idle_slots.pop();
        idle.unwrap_or_else(NotificationSlot::new)
    }

    /// Takes over notifications, and their slot.
    pub fn add(&self, slot: Option<&'static NotificationSlot>, notifications: [Notification; 2]) {
        lock(&self.state).pending.push(Pending {
            slot,
            notifications,
            deadline: Instant::now() + RETRY_LIMIT,
        });
        self.added.notify_one();
    }

    /// The body of the thread: rounds, in which each pending notification is tried once.
    fn run(&self) {
        let mut pending: Vec<Pending> = Vec::new();
        loop {
            let mut state = lock(&self.state);
            if state.pending.is_empty() {
                let timeout = if pending.is_empty() {
                    FOREVER
                } else {
                    RETRY_INTERVAL
                };
                let woken = self.added.wait_timeout(state, timeout);
                state = woken.map_or_else(|e| e.into_inner().0, |(state, _)| state);
            }
            pending.append(&mut state.pending);
            drop(state);
            let mut signal_queue_is_full = false;
            let mut idle_slots = Vec::new();
            pending.retain_mut(|notifications| {
                let is_finished = notifications.try_send(&mut signal_queue_is_full);
                if is_finished {
                    idle_slots.extend(notifications.slot);
                }
                !is_finished
            });
            lock(&self.state).idle_slots.append(&mut idle_slots);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
