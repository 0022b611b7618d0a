//! Errors: the operation, the file and the errno.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::display_path::DisplayPath;
use crate::sys::Errno;

/// A `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A query that failed. It converts into [`std::io::Error`].
///
/// ```
/// let file = std::fs::File::open("Cargo.toml")?;
/// let error = nowait_residency::resident_prefix(&file, u64::MAX, 1).unwrap_err();
/// assert!(error.is_invalid_range());
/// assert_eq!(error.to_string(), "resident_prefix: invalid argument");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    operation: &'static str,
    path: Option<Arc<Path>>,
    /// `None` if the range is invalid.
    errno: Option<Errno>,
}

impl Error {
    /// An error that the kernel returned for `operation`.
    pub(crate) fn os(operation: &'static str, errno: Errno) -> Error {
        Error {
            operation,
            path: None,
            errno: Some(errno),
        }
    }

    /// The range of `operation` ends before it begins, or beyond `u64`.
    pub(crate) fn invalid_range(operation: &'static str) -> Error {
        Error {
            operation,
            path: None,
            errno: None,
        }
    }

    /// The same error, with the file that it concerns.
    pub(crate) fn on(mut self, path: Option<&Arc<Path>>) -> Error {
        self.path = path.cloned();
        self
    }

    /// The query that failed: the name of the function or of the system call.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The path of the file, if the probe knows it.
    pub fn path(&self) -> Option<&Arc<Path>> {
        self.path.as_ref()
    }

    /// The errno, if the error came from the kernel.
    pub fn errno(&self) -> Option<i32> {
        self.errno.map(Errno::raw_os_error)
    }

    /// The kind that the standard library has for the errno.
    pub fn kind(&self) -> io::ErrorKind {
        match self.errno() {
            Some(errno) => io::Error::from_raw_os_error(errno).kind(),
            None => io::ErrorKind::InvalidInput,
        }
    }

    /// Returns true if the range ends before it begins, or beyond `u64`.
    pub fn is_invalid_range(&self) -> bool {
        self.errno.is_none()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation)?;
        if let Some(path) = &self.path {
            write!(f, " {}", DisplayPath(path))?;
        }
        match self.errno() {
            Some(errno) => write!(f, ": {}", io::Error::from_raw_os_error(errno)),
            None => f.write_str(": invalid argument"),
        }
    }
}

/// Formats as [`Display`](fmt::Display), so that an error returned by `main` is readable.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}
