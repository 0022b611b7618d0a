//! What can go wrong, with the operation and the file it went wrong on.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::shown::Shown;
use crate::sys::Errno;

/// A `Result` with nowait's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An operation that failed: which one, on which file where there is one, and why.
///
/// It is shown with the path as [`Shown`](crate::Shown) has it: no name drives a terminal.
/// Converts into [`std::io::Error`] without losing the errno, so `?` works in functions that
/// return `io::Result`.
#[derive(Clone)]
pub struct Error(Box<Failure>);

/// What an error says. Behind a box, since results are moved about a million times a second and are
/// hardly ever errors.
#[derive(Clone)]
struct Failure {
    operation: &'static str,
    kind: ErrorKind,
    errno: Option<Errno>,
    path: Option<Arc<Path>>,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The kernel returned an error. The kind is that of the standard library for the errno, which
    /// [`Error::errno`] returns.
    Io(io::ErrorKind),
    /// The kernel, the sandbox or this filesystem does not know the call or the flag
    /// (ENOSYS, EOPNOTSUPP).
    Unsupported,
    /// The arguments can't be right: an offset beyond `i64`, an empty list where one is needed.
    InvalidInput,
    /// A read that had to fill its buffer met the end of the file (`read_exact_at`).
    UnexpectedEof,
    /// A write that had to write everything was taken for zero bytes (`write_all_at`).
    WriteZero,
    /// Cancelled by the program before the kernel did it. ECANCELED of a filesystem is `Io`.
    Cancelled,
    /// Its deadline passed before the kernel did it. ETIME of a filesystem is `Io`.
    DeadlinePassed,
    /// The engine belongs to the process that made it, and this is a forked child of that one.
    Forked,
    /// The engine is at its limit of operations in flight.
    Full,
    /// O_DIRECT demands more: memory, or offset and length, that are multiples of these (bytes).
    Misaligned {
        /// Each piece of memory begins at a multiple of this.
        memory: u32,
        /// Offset and length are multiples of this.
        offset: u32,
    },
    /// Every slot of the set of registered files is taken.
    SetFull,
    /// Only a ring can do that, and this engine has none: the backend is threads, or the kernel
    /// makes no such ring.
    NeedsRing,
    /// A polled engine reads and writes only files opened with O_DIRECT, and this one was not.
    NeedsDirect,
    /// A polled engine, and a device or filesystem that can't be polled.
    NeedsPollQueues,
    /// A directory leads back to where its listing has been: its filesystem is broken, and the
    /// listing was ended instead of going on for ever.
    Repeats,
    /// A directory is its own ancestor, by a bind mount or a symbolic link that was to be followed:
    /// it was not entered again.
    Cycle,
}

impl Error {
    /// An error that the kernel gave for `operation`.
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

    /// An error of our own.
    pub(crate) fn new(operation: &'static str, kind: ErrorKind) -> Error {
        Error(Box::new(Failure {
            operation,
            kind,
            errno: matches!(kind, ErrorKind::Misaligned { .. }).then_some(Errno::INVAL),
            path: None,
        }))
    }

    /// An error that a standard library call gave.
    pub(crate) fn io(operation: &'static str, error: &io::Error) -> Error {
        Error::os(operation, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    /// The same error, for a reason that we know better than its number tells.
    pub(crate) fn because(mut self, kind: ErrorKind) -> Error {
        self.0.kind = kind;
        self
    }

    /// The same error, with the file it concerns.
    pub(crate) fn on(mut self, path: Option<&Arc<Path>>) -> Error {
        self.0.path = path.cloned();
        self
    }

    /// The same error, by the name of the method that the caller used.
    pub(crate) fn named(mut self, operation: &'static str) -> Error {
        self.0.operation = operation;
        self
    }

    /// What was tried: the name of the method or of the system call.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// Why it failed.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The kernel's number for the error, where it came from the kernel.
    pub fn errno(&self) -> Option<i32> {
        self.0.errno.map(Errno::raw_os_error)
    }

    /// The file, where it was opened by its path.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.operation)?;
        if let Some(path) = &self.0.path {
            write!(f, " {}", Shown(path))?;
        }
        f.write_str(": ")?;
        let ours = match self.0.kind {
            ErrorKind::Misaligned { memory, offset } => {
                return write!(
                    f,
                    "O_DIRECT needs memory at a multiple of {memory} bytes, offset and length at one of {offset}"
                );
            }
            ErrorKind::Io(_) => "failed",
            ErrorKind::Unsupported => "not supported here",
            ErrorKind::InvalidInput => "not a value that can be used",
            ErrorKind::UnexpectedEof => "the file ends before the buffer is full",
            ErrorKind::WriteZero => "the kernel accepted no more bytes",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::DeadlinePassed => "the deadline passed",
            ErrorKind::Forked => {
                "the engine belongs to the parent process; make a new one after fork"
            }
            ErrorKind::SetFull => {
                "every slot is taken; drop handles made with the set, or ask for a larger one"
            }
            ErrorKind::NeedsRing => "only an io_uring ring can do that; do without, or allow one",
            ErrorKind::NeedsDirect => {
                "a polled engine reads and writes only files opened with O_DIRECT; open it so, or \
                 use an engine that is not polled"
            }
            ErrorKind::NeedsPollQueues => {
                "the device or its filesystem can't be polled; give the device poll queues (NVMe: \
                 nvme.poll_queues=N on the kernel's command line), or use an engine that is not \
                 polled"
            }
            ErrorKind::Repeats => {
                "the directory repeats itself and would never end; its filesystem is broken"
            }
            ErrorKind::Cycle => "the directory is one of its own ancestors; not entered again",
            ErrorKind::Full => "the engine is full; reap completions or raise its depth",
        };
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

/// The text of [`Display`](fmt::Display), so that an error which `main` returns is readable. `{:#?}` prints
/// the fields.
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

/// The standard library's kind for the same failure. Failures that it has no kind for are
/// [`Other`](io::ErrorKind::Other).
impl From<ErrorKind> for io::ErrorKind {
    fn from(kind: ErrorKind) -> io::ErrorKind {
        match kind {
            ErrorKind::Io(kind) => kind,
            ErrorKind::InvalidInput | ErrorKind::Misaligned { .. } => io::ErrorKind::InvalidInput,
            ErrorKind::UnexpectedEof => io::ErrorKind::UnexpectedEof,
            ErrorKind::WriteZero => io::ErrorKind::WriteZero,
            ErrorKind::DeadlinePassed => io::ErrorKind::TimedOut,
            ErrorKind::Full | ErrorKind::SetFull => io::ErrorKind::WouldBlock,
            ErrorKind::Unsupported
            | ErrorKind::NeedsRing
            | ErrorKind::NeedsDirect
            | ErrorKind::NeedsPollQueues => io::ErrorKind::Unsupported,
            ErrorKind::Cancelled | ErrorKind::Forked | ErrorKind::Repeats | ErrorKind::Cycle => {
                io::ErrorKind::Other
            }
        }
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
