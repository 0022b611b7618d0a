//! The state of a notification, outside of the control block that it is for.
//!
//! The program may free or resubmit a control block as soon as it has been notified. The library
//! can no longer write "notification sent" to the block at that time, so it writes it here. A block
//! points to the slot of its notification, and a slot holds the address of its block.
//!
//! Slots are reused and never freed: a block may point to a slot long after its notification.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The address of a control block while the program is being notified of it, and 0 otherwise. Bit 0
/// is set while the notification is delayed: one word, so that both are read at once.
#[derive(Debug, Default)]
pub struct NotificationSlot(AtomicUsize);

/// Set in the address while the notification is delayed. A control block is aligned, so this bit of
/// its address is 0.
const DELAYED: usize = 1;

/// The state of one block's notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is being sent, by a thread that has all signals blocked. The slot changes right after
    /// that.
    Sending,
    /// It cannot be sent now, and is tried again later.
    Delayed,
    /// It was sent, or dropped because it could not be sent for a long time.
    Finished,
}

impl NotificationSlot {
    /// Allocates a slot that is never freed.
    pub fn new() -> &'static NotificationSlot {
        Box::leak(Box::default())
    }

    /// Uses the slot for the block at this address. Nothing is published before the block itself
    /// says that its request is done.
    pub fn begin(&self, block: usize) {
        self.0.store(block, Ordering::Relaxed);
    }

    /// The notification is being sent.
    pub fn set_sending(&self) {
        let block = self.0.load(Ordering::Relaxed);
        self.0.store(block & !DELAYED, Ordering::SeqCst);
    }

    /// The notification cannot be sent now. The caller wakes waiting threads: `wait::wake_all`.
    pub fn set_delayed(&self) {
        let block = self.0.load(Ordering::Relaxed);
        self.0.store(block | DELAYED, Ordering::SeqCst);
    }

    /// The notification was sent. The caller wakes waiting threads: `wait::wake_all`.
    pub fn set_finished(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// The state of the notification for the block at this address.
    pub fn progress(&self, block: usize) -> Progress {
        match self.0.load(Ordering::Acquire) {
            word if word == block => Progress::Sending,
            word if word == block | DELAYED => Progress::Delayed,
            _ => Progress::Finished,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_knows_the_notification_of_one_block_only() {
        let slot = NotificationSlot::default();
        slot.begin(64);
        assert_eq!(slot.progress(64), Progress::Sending);
        assert_eq!(slot.progress(128), Progress::Finished);
        slot.set_delayed();
        assert_eq!(slot.progress(64), Progress::Delayed);
        slot.set_sending();
        assert_eq!(slot.progress(64), Progress::Sending);
        slot.set_finished();
        assert_eq!(slot.progress(64), Progress::Finished);
    }
}
