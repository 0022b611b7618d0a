//! Messages to the service manager (sd_notify(3)). Without one, nothing is sent.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use sd_notify::NotifyState;

use super::status::Status;

/// The longest wait for a service manager whose queue of messages is full. A message that it does not
/// take is lost.
const WAIT: Duration = Duration::from_secs(1);

/// The same for messages that are repeated.
const SHORT_WAIT: Duration = Duration::from_millis(100);

/// Sends the states. A service manager that does not listen is no reason to end.
fn send(states: &[NotifyState<'_>], wait: Duration) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = send_to(path, states, wait);
    }
}

fn send_to(path: OsString, states: &[NotifyState<'_>], wait: Duration) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    match path.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(path)?,
    }
    socket.set_write_timeout(Some(wait))?;
    let lines: String = states.iter().map(|state| format!("{state}\n")).collect();
    socket.send(lines.as_bytes())?;
    Ok(())
}

/// The files have been looked at, and their directories are watched.
pub fn ready() {
    send(&[NotifyState::Ready], WAIT);
}

/// The list of paths is read again. [`ready`] ends this.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now], WAIT),
        Err(_) => send(&[NotifyState::Reloading], WAIT),
    }
}

/// The program ends.
pub fn stopping() {
    send(&[NotifyState::Stopping], WAIT);
}

/// Tells what is resident.
pub fn status(status: &Status) {
    send(&[NotifyState::Status(&status.line())], SHORT_WAIT);
}

/// The program is alive.
pub fn alive() {
    send(&[NotifyState::Watchdog], SHORT_WAIT);
}

/// The interval at which [`alive`] is to be called; `None` if nothing waits for it.
pub fn interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|most| most / 2)
}
