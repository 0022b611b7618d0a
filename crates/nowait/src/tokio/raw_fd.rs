//! `FromRawFd` for the file.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use super::file::File;

/// Converts a raw descriptor, as `tokio::fs::File` does.
impl FromRawFd for File {
    unsafe fn from_raw_fd(fd: RawFd) -> File {
        // SAFETY: the caller guarantees that the descriptor is open and that no one else owns it.
        unsafe { OwnedFd::from_raw_fd(fd) }.into()
    }
}
