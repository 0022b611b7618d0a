//! Messages to the service manager (sd_notify(3)). Without one, nothing is sent.

use std::time::Duration;

use sd_notify::NotifyState;

use super::status::Status;

/// Sends the states. A service manager that does not listen is no reason to end.
fn send(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}

/// The files have been looked at, and their directories are watched.
pub fn ready() {
    send(&[NotifyState::Ready]);
}

/// The list of paths is read again. [`ready`] ends this.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(_) => send(&[NotifyState::Reloading]),
    }
}

/// The program ends.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// Tells what is resident.
pub fn status(status: &Status) {
    send(&[NotifyState::Status(&status.line())]);
}

/// The program is alive.
pub fn alive() {
    send(&[NotifyState::Watchdog]);
}

/// The interval at which [`alive`] is to be called; `None` if nothing waits for it.
pub fn interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|most| most / 2)
}
