//! The sleep of the owner. The sender of a message wakes the owner only if it sleeps, and only
//! once.
//!
//! ```text
//!   owner                          sender
//!   asleep = true                  queue the message
//!   fence                          fence
//!   check the queue again          asleep? then wake the owner
//! ```
//!
//! With both fences, either the owner sees the message or the sender sees `asleep`.

use crate::sys::sync::ordered::{AtomicBool, Ordering, fence};

/// True while the owner sleeps, or is about to.
#[derive(Debug)]
pub(super) struct Sleep(AtomicBool);

impl Sleep {
    pub(super) fn new() -> Sleep {
        Sleep(AtomicBool::new(false))
    }

    /// Announces that the owner is about to sleep. It must check its queue after this, and not
    /// sleep if there is a message.
    pub(super) fn announce(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The owner is awake.
    pub(super) fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Called after a message was queued. Returns true if the sender must wake the owner. Only one
    /// sender gets true.
    pub(super) fn must_be_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::AcqRel)
    }
}

#[cfg(all(test, nowait_loom))]
mod model {
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Condvar, Mutex};

    use super::*;

    /// The owner's eventfd: a counter. A read waits for a count above zero and resets it.
    struct Event(Mutex<u64>, Condvar);

    impl Event {
        fn write(&self) {
            *self.0.lock().unwrap() += 1;
            self.1.notify_one();
        }

        fn read(&self) {
            let mut count = self.0.lock().unwrap();
            while *count == 0 {
                count = self.1.wait(count).unwrap();
            }
            *count = 0;
        }
    }

    /// An owner receives one message from each sender, and sleeps while there is none.
    fn all_arrive(senders: usize, preemptions: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let sleep = Arc::new(Sleep::new());
            let messages = Arc::new(AtomicUsize::new(0));
            let event = Arc::new(Event(Mutex::new(0), Condvar::new()));
            for _ in 0..senders {
                let (sleep, messages, event) = (sleep.clone(), messages.clone(), event.clone());
                loom::thread::spawn(move || {
                    messages.fetch_add(1, Ordering::Release);
                    if sleep.must_be_woken() {
                        event.write();
                    }
                });
            }
            while messages.load(Ordering::Acquire) < senders {
                let seen = messages.load(Ordering::Acquire);
                sleep.announce();
                if messages.load(Ordering::Acquire) == seen && seen < senders {
                    event.read();
                }
                sleep.end();
            }
        });
    }

    #[test]
    fn a_message_wakes_the_owner() {
        all_arrive(1, 3);
    }

    #[test]
    fn messages_of_two_senders_wake_the_owner() {
        all_arrive(2, 1);
    }
}
