//! A notification that the program asked for: a `sigevent`, checked.

use std::ffi::c_int;

use rustix::io::Errno;

use crate::abi::{NotifyFunction, Sigevent, Sigval};
use crate::notify::thread::{self, Attributes};
use crate::sys::signal;
use crate::wait;

#[derive(Clone, Copy, Debug)]
pub enum Notification {
    None,
    /// Queue a signal.
    Signal(c_int, Sigval),
    /// Call a function on a new thread. The attributes belong to the program.
    Thread(NotifyFunction, Sigval, Attributes),
}

/// The highest signal number.
const MAX_SIGNAL_NUMBER: c_int = 64;

impl Notification {
    /// Checks a `sigevent`. EINVAL for an unknown kind of notification, a bad signal number, or a
    /// null function.
    pub fn new(event: &Sigevent) -> Result<Notification, Errno> {
        match (event.notify, event.signo) {
            (libc::SIGEV_NONE, _) => Ok(Notification::None),
            // A zeroed block asks for signal 0, which does not exist.
            (libc::SIGEV_SIGNAL, 0) => Ok(Notification::None),
            (libc::SIGEV_SIGNAL, 1..=MAX_SIGNAL_NUMBER) => {
                Ok(Notification::Signal(event.signo, event.value))
            }
            (libc::SIGEV_THREAD, _) => {
                let function = event.notify_function.ok_or(Errno::INVAL)?;
                let attributes = Attributes(event.notify_attributes);
                Ok(Notification::Thread(function, event.value, attributes))
            }
            _ => Err(Errno::INVAL),
        }
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Notification::None)
    }

    pub fn is_signal(&self) -> bool {
        matches!(self, Notification::Signal(..))
    }

    pub fn is_thread(&self) -> bool {
        matches!(self, Notification::Thread(..))
    }

    /// Queues the signal or starts the thread. EAGAIN if that is not possible now.
    pub fn send(&self) -> Result<(), Errno> {
        match *self {
            Notification::None => Ok(()),
            Notification::Signal(signo, value) => {
                wait::count_signal(signo, || signal::queue(signo, value))
            }
            Notification::Thread(function, value, attributes) => {
                thread::start(function, value, attributes)
            }
        }
    }
}
