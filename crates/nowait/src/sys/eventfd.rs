//! eventfd(2).

use std::os::fd::OwnedFd;

use rustix::event::EventfdFlags;

use super::Errno;

/// Makes an eventfd(2). An eventfd that a ring reads must block: with O_NONBLOCK, rings of some
/// kernels return EAGAIN instead of waiting.
pub(crate) fn eventfd(flags: EventfdFlags) -> Result<OwnedFd, Errno> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | flags)
}

/// Makes an eventfd readable. Its counter saturates, and no other error is possible.
pub(crate) fn notify(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}
