//! Errors as `tokio::fs` returns them.

use std::io;

use crate::error::Error;

/// Converts an error as `tokio::fs` returns it: `raw_os_error` returns the kernel's errno.
pub(super) fn as_io(error: Error) -> io::Error {
    match error.errno() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => error.into(),
    }
}
