//! close(2), with its result. The standard library drops it.
#![allow(unsafe_code)]

use std::os::fd::{IntoRawFd, OwnedFd};

use super::Errno;

/// Closes a descriptor. It is closed also after an error, of any kind: close(2) is not repeated.
pub(crate) fn close(fd: OwnedFd) -> Result<(), Errno> {
    // SAFETY: this is the only owner of the descriptor.
    super::check(unsafe { libc::close(fd.into_raw_fd()) }.into()).map(|_| ())
}
