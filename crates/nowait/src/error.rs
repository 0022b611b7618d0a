//! Errors: the operation, the file, and the reason.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nowait_residency::DisplayPath;

use crate::sys::Errno;

/// A `Result` with nowait's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An operation that failed: its name, the file if there is one, and the reason.
///
/// Paths are displayed by [`DisplayPath`](crate::DisplayPath), so that no file name sends control
/// characters to a terminal. It converts into [`std::io::Error`] and keeps the errno, so `?` works
/// in functions that return `io::Result`.
#[derive(Clone)]
pub struct Error(Box<Failure>);

/// The content of an error. It is boxed, because results are moved about a million times a second
/// and are rarely errors.
#[derive(Clone)]
struct Failure {
    operation: &'static str,
    kind: ErrorKind,
    errno: Option<Errno>,
    path: Option<Arc<Path>>,
}

/// The reason why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The kernel returned an error. The kind is that of the standard library for the errno, which
    /// [`Error::errno`] returns.
    Io(io::ErrorKind),
    /// The kernel, the sandbox or the filesystem does not support the call or the flag (ENOSYS,
    /// EOPNOTSUPP).
    Unsupported,
    /// An argument is invalid, such as an offset beyond `i64`, or an empty list.
    InvalidInput,
    /// A read that had to fill its buffer reached the end of the file (`read_exact_at`).
    UnexpectedEof,
    /// The kernel accepted zero bytes of a write that had to write everything (`write_all_at`).
    WriteZero,
    /// The program cancelled the operation before the kernel completed it. ECANCELED returned by a
    /// filesystem is `Io`.
    Cancelled,
    /// The deadline passed before the kernel completed the operation. ETIME returned by a
    /// filesystem is `Io`.
    DeadlinePassed,
    /// The engine was created by the parent process, and this process is a forked child.
    Forked,
    /// The engine has reached its limit of operations in flight.
    Full,
    /// O_DIRECT needs memory, offset and length that are multiples of these numbers of bytes.
    Misaligned {
        /// The required alignment of each piece of memory.
        memory: u32,
        /// The required alignment of offset and length.
        offset: u32,
    },
    /// Every slot of the set of registered files is in use.
    SetFull,
    /// An option of the engine needs a ring, and there is none: the backend is threads, or the
    /// kernel does not support such a ring.
    NeedsRing,
    /// The engine is polled, and the file was not opened with O_DIRECT. A polled engine reads and
    /// writes only such files.
    NeedsDirect,
    /// The engine is polled, and the device or filesystem does not support polling.
    NeedsPollQueues,
    /// The entries of a directory repeat themselves. The filesystem is broken, and the listing was
    /// ended because it would never end by itself.
    Repeats,
    /// A directory is its own ancestor, by a bind mount or a followed symbolic link. It was not
    /// entered again.
    Cycle,
    /// The file may change, so its bytes cannot be borrowed: [`Mapping::why`](crate::Mapping::why)
    /// has the reason.
    Unprotected,
    /// The file is a FIFO, a socket, a device or of another type without contents. It was not
    /// opened.
    NotRegular,
}

impl Error {
    /// An error that the kernel returned for `operation`.
    pub(crate) fn os(operation: &'static str, errno: Errno) -> Error {
        let kind = match errno {
            Errno::NOSYS | Errno::OPNOTSUPP => ErrorKind::Unsupported,
            _ => ErrorKind::Io(io::Error::from_raw_os_error(errno.raw_os_error()).kind()),
        };
        Error(Box::new(Failure {
            operation,
            kind,
            errno: Some(errno),
            path: None,
        }))
    }

    /// An error of this library.
    pub(crate) fn new(operation: &'static str, kind: ErrorKind) -> Error {
        Error(Box::new(Failure {
            operation,
            kind,
            errno: matches!(kind, ErrorKind::Misaligned { .. }).then_some(Errno::INVAL),
            path: None,
        }))
    }

    /// An error that a standard library call returned.
    pub(crate) fn io(operation: &'static str, error: &io::Error) -> Error {
        Error::os(operation, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    /// The same error, with a more precise kind than its errno has.
    pub(crate) fn because(mut self, kind: ErrorKind) -> Error {
        self.0.kind = kind;
        self
    }

    /// The same error, with the file that it concerns.
    pub(crate) fn on(mut self, path: Option<&Arc<Path>>) -> Error {
        self.0.path = path.cloned();
        self
    }

    /// The same error, with the name of the method that the caller used.
    pub(crate) fn named(mut self, operation: &'static str) -> Error {
        self.0.operation = operation;
        self
    }

    /// The operation that failed: the name of the method or of the system call.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The reason for the failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The errno, if the error came from the kernel.
    pub fn errno(&self) -> Option<i32> {
        self.0.errno.map(Errno::raw_os_error)
    }

    /// The path, if the file was opened by its path.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }
}

impl ErrorKind {
    /// The text of the reason, unless the errno has it.
    fn text(self) -> &'static str {
        match self {
            ErrorKind::Io(_) | ErrorKind::Misaligned { .. } => "failed",
            ErrorKind::Unsupported => "not supported by the kernel, the sandbox or the filesystem",
            ErrorKind::InvalidInput => "invalid argument",
            ErrorKind::UnexpectedEof => "the file ends before the buffer is full",
            ErrorKind::WriteZero => "the kernel accepted no more bytes",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::DeadlinePassed => "the deadline passed",
            ErrorKind::Forked => {
                "the engine belongs to the parent process; create a new one after fork"
            }
            ErrorKind::SetFull => {
                "every slot is in use; drop handles of the set, or create a larger one"
            }
            ErrorKind::NeedsRing => {
                "this needs io_uring, and the engine has no such ring; allow it, or do without"
            }
            ErrorKind::NeedsDirect => {
                "a polled engine reads and writes only files opened with O_DIRECT; open the file \
                 with O_DIRECT, or use an engine that is not polled"
            }
            ErrorKind::NeedsPollQueues => {
                "the device or its filesystem does not support polling; give the device poll queues (NVMe: \
                 nvme.poll_queues=N on the kernel's command line), or use an engine that is not \
                 polled"
            }
            ErrorKind::Repeats => {
                "the entries of the directory repeat themselves; the filesystem is broken"
            }
            ErrorKind::Cycle => {
                "the directory is one of its own ancestors; it was not entered again"
            }
            ErrorKind::Unprotected => "the file may change, so its bytes cannot be borrowed",
            ErrorKind::NotRegular => "not a regular file; it was not opened",
            ErrorKind::Full => "the engine is full; reap completions or raise its depth",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.operation)?;
        if let Some(path) = &self.0.path {
            write!(f, " {}", DisplayPath(path))?;
        }
        f.write_str(": ")?;
        if let ErrorKind::Misaligned { memory, offset } = self.0.kind {
            return write!(
                f,
                "O_DIRECT needs memory at a multiple of {memory} bytes, and offset and length at a multiple of {offset}"
            );
        }
        let ours = self.0.kind.text();
        match self.0.errno {
            Some(errno) if matches!(self.0.kind, ErrorKind::Io(_)) => {
                write!(f, "{}", io::Error::from_raw_os_error(errno.raw_os_error()))
            }
            Some(errno) => {
                write!(
                    f,
                    "{ours}: {}",
                    io::Error::from_raw_os_error(errno.raw_os_error())
                )
            }
            None => f.write_str(ours),
        }
    }
}

/// Formats as [`Display`](fmt::Display), so that an error returned by `main` is readable. `{:#?}`
/// prints the fields.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        f.debug_struct("Error")
            .field("operation", &self.0.operation)
            .field("kind", &self.0.kind)
            .field("errno", &self.errno())
            .field("path", &self.0.path.as_ref().map(|p| PathBuf::from(&**p)))
            .finish()
    }
}

impl std::error::Error for Error {}

/// The standard library's kind for the same failure. It is [`Other`](io::ErrorKind::Other) if the
/// standard library has no such kind.
impl From<ErrorKind> for io::ErrorKind {
    fn from(kind: ErrorKind) -> io::ErrorKind {
        match kind {
            ErrorKind::Io(kind) => kind,
            ErrorKind::InvalidInput | ErrorKind::Misaligned { .. } | ErrorKind::NotRegular => {
                io::ErrorKind::InvalidInput
            }
            ErrorKind::UnexpectedEof => io::ErrorKind::UnexpectedEof,
            ErrorKind::WriteZero => io::ErrorKind::WriteZero,
            ErrorKind::DeadlinePassed => io::ErrorKind::TimedOut,
            ErrorKind::Full | ErrorKind::SetFull => io::ErrorKind::WouldBlock,
            ErrorKind::Unsupported
            | ErrorKind::NeedsRing
            | ErrorKind::NeedsDirect
            | ErrorKind::NeedsPollQueues
            | ErrorKind::Unprotected => io::ErrorKind::Unsupported,
            ErrorKind::Cancelled | ErrorKind::Forked | ErrorKind::Repeats | ErrorKind::Cycle => {
                io::ErrorKind::Other
            }
        }
    }
}

impl From<nowait_residency::Error> for Error {
    fn from(error: nowait_residency::Error) -> Error {
        let own = match error.errno() {
            Some(errno) => Error::os(error.operation(), Errno::from_raw_os_error(errno)),
            None => Error::new(error.operation(), ErrorKind::InvalidInput),
        };
        own.on(error.path())
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind().into(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_reaches_a_terminal_as_it_is() {
        let path: Arc<Path> = Path::new("a\n\x1b[2Jb").into();
        let error = Error::os("open", Errno::NOENT).on(Some(&path));
        let text = error.to_string();
        assert!(text.starts_with(r"open $'a\n\033[2Jb': "), "{text}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has texts of its own for errors")]
    fn an_error_of_the_kernel_keeps_its_kind_and_its_text() {
        let path: Arc<Path> = Path::new("/x").into();
        let error = Error::os("open", Errno::NOENT).on(Some(&path));
        let text = "open /x: No such file or directory (os error 2)";
        assert_eq!(error.to_string(), text);
        assert_eq!(format!("{error:?}"), text, "as main prints it");
        assert_eq!(error.kind(), ErrorKind::Io(io::ErrorKind::NotFound));
        let std = io::Error::from(error);
        assert_eq!(
            (std.kind(), std.to_string()),
            (io::ErrorKind::NotFound, text.into())
        );
    }

    #[test]
    fn every_kind_has_one_of_the_standard_library() {
        for (kind, std) in [
            (ErrorKind::Unsupported, io::ErrorKind::Unsupported),
            (ErrorKind::InvalidInput, io::ErrorKind::InvalidInput),
            (ErrorKind::Full, io::ErrorKind::WouldBlock),
            (ErrorKind::DeadlinePassed, io::ErrorKind::TimedOut),
            (ErrorKind::Cancelled, io::ErrorKind::Other),
        ] {
            let error = io::Error::from(Error::new("read_at", kind));
            assert_eq!(error.kind(), std, "{kind:?}");
        }
    }
}
