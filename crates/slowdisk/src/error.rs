//! Errors with the failed operation and its object.

use std::fmt;
use std::io;

/// A failure of setting up, changing or taking down a device or mount.
#[derive(Debug)]
pub struct Error {
    doing: String,
    cause: io::Error,
}

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(doing: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Error {
            doing: doing.into(),
            cause: cause.into(),
        }
    }

    /// The kind of the underlying error; [`io::ErrorKind::Unsupported`] if a requirement is
    /// missing.
    pub fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }

    /// The errno, if the operating system returned one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.cause)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

impl From<io::Error> for Error {
    fn from(cause: io::Error) -> Error {
        Error::new("I/O", cause)
    }
}

/// Adds the operation to the error of an I/O call.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Error::new(what(), cause))
    }
}
