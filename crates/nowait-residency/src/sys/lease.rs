//! Leases: fcntl(2), `F_GETLEASE`.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns true if the open file description has a lease for writing. Opening the file again would
/// break it.
pub fn is_for_writing(fd: BorrowedFd<'_>) -> bool {
    has(fd, libc::F_WRLCK)
}

/// Returns true if the open file description has a lease of this kind: `F_RDLCK` or `F_WRLCK`.
pub fn has(fd: BorrowedFd<'_>, kind: impl Into<libc::c_int>) -> bool {
    // SAFETY: the command has no argument.
    !cfg!(miri) && unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETLEASE) } == kind.into()
}
