//! Completes a request within the call that submits it.

use rustix::io::Errno;

use crate::notify::Notification;
use crate::process_state::ProcessState;
use crate::request::{Outcome, Request};
use crate::sys::signal;
use crate::wait;

/// Sets the result of a request and notifies the program.
pub fn complete(request: &Request, outcome: Outcome) {
    request.block.complete(outcome);
    wait::wake_all();
    send(&request.notification);
    if let Some(list) = &request.list
        && list.remove()
    {
        send(list.notification());
    }
}

/// Sends a notification. If that is not possible now (the signal queue is full, or no thread can be
/// started), the notifier sends it, because the call must not wait.
pub fn send(notification: &Notification) {
    if notification.send() != Err(Errno::AGAIN) {
        return;
    }
    // The driver needs the notifier's lock too.
    signal::with_all_blocked(|| {
        if let Ok(queue) = ProcessState::get_or_init().and_then(ProcessState::queue_or_start_driver)
            && queue.notifier.ensure_started().is_ok()
        {
            let notifications = [*notification, Notification::None];
            queue.notifier.add(None, notifications);
        }
    });
}
