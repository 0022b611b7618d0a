//! eventfd(2).

use std::os::fd::OwnedFd;

use rustix::event::EventfdFlags;

use super::Errno;

/// A new eventfd(2). One that a ring reads must block: of a file with O_NONBLOCK some kernels'
/// rings report EAGAIN instead of waiting.
pub(crate) fn eventfd(flags: EventfdFlags) -> Result<OwnedFd, Errno> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | flags)
}

/// Makes an eventfd readable. Its count saturates; there is nothing else to fail.
pub(crate) fn notify(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}
