//! Completes a request on the driver's thread: sets its result and notifies the program.

use rustix::io::Errno;

use crate::notification_slot::NotificationSlot;
use crate::notify::{Notification, Notifier};
use crate::request::{Outcome, Request};

/// Completes a request. Notifications that cannot be sent now, or that start a thread, are handed
/// to the notifier together with the slot, and `slot` becomes an idle one. The caller wakes waiting
/// threads: `wait::wake_all`.
pub fn complete(
    request: Request,
    outcome: Outcome,
    slot: &mut &'static NotificationSlot,
    notifier: &Notifier,
) {
    if request.notification.is_none() && request.list.is_none() {
        return request.block.complete(outcome);
    }
    request.block.complete_and_notify(outcome, slot);
    let last = request.list.as_ref().filter(|list| list.remove());
    let of_list = last.map_or(Notification::None, |list| *list.notification());
    let unsent = [request.notification, of_list].map(|notification| {
        if notification.is_thread() || notification.send() == Err(Errno::AGAIN) {
            notification
        } else {
            Notification::None
        }
    });
    if unsent.iter().all(Notification::is_none) {
        return slot.set_finished();
    }
    slot.set_delayed();
    let used = std::mem::replace(slot, notifier.idle_slot());
    notifier.add(Some(used), unsent);
}
