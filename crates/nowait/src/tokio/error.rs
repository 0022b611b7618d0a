//! Errors as `tokio::fs` returns them.

use std::io;

use crate::error::Error;

/// An error as `tokio::fs` gives it: the kernel's number, so that `raw_os_error` has it.
pub(super) fn as_io(error: Error) -> io::Error {
    match error.errno() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => error.into(),
    }
}
