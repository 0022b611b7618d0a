//! The error of an operation, before it becomes one of an object_store version.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The reason why an operation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A call failed. The operation is named as its system call.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    /// No object has this path.
    #[error("there is no object {}: {source}", path.display())]
    NotFound { path: PathBuf, source: io::Error },

    /// An object has this path already.
    #[error("{} exists: {source}", path.display())]
    AlreadyExists { path: PathBuf, source: io::Error },

    /// The filesystem has no call that creates the object only if there is none.
    #[error(
        "{} cannot be created without replacing an object: the filesystem has neither hard links \
         nor RENAME_NOREPLACE of renameat2(2): {source}",
        path.display()
    )]
    NotSupported { path: PathBuf, source: io::Error },

    /// The range begins at or after the end of the file.
    #[error("the range begins at byte {start}, and {} has {len} bytes", path.display())]
    StartTooLarge { path: PathBuf, start: u64, len: u64 },

    /// The file has fewer bytes than the range.
    #[error("the range ends at byte {end}, and {} has {len} bytes", path.display())]
    OutOfRange { path: PathBuf, end: u64, len: u64 },

    /// The end of the range is before its start.
    #[error("the range begins at byte {start} and ends at byte {end}")]
    Inconsistent { start: u64, end: u64 },

    /// The name is one of those that the store gives to files while they are written.
    #[error("names that end with '#' and a number are not supported: {name}")]
    ReservedName { name: String },

    /// The upload was completed or aborted before.
    #[error("the upload was completed or aborted")]
    Aborted,

    /// The upload belongs to the parent of this process.
    #[error("the upload was begun before fork(2), by the parent of this process")]
    Forked,

    /// The engine could not carry out an operation.
    #[error(transparent)]
    Engine(#[from] nowait::Error),
}

impl Error {
    /// A function that makes an error of the result of `operation` on `path`.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io {
            operation,
            path: path.to_owned(),
            source,
        }
    }

    /// An error of opening the file at `path`.
    pub(crate) fn open(path: &Path, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::NotFound => Error::NotFound {
                path: path.to_owned(),
                source,
            },
            _ => Error::io("open", path)(source),
        }
    }

    /// An error of the library's opening the object at `path`. What is no regular file is no
    /// object.
    pub(crate) fn open_object(path: &Path, error: nowait::Error) -> Error {
        let path = path.to_owned();
        match error.kind() {
            nowait::ErrorKind::NotRegular => Error::not_an_object(&path),
            nowait::ErrorKind::Io(io::ErrorKind::IsADirectory) => {
                let source = errno(error);
                Error::NotFound { path, source }
            }
            _ => Error::open(&path, errno(error)),
        }
    }

    /// The file at `path` is a directory, a FIFO, a socket or a device.
    pub(crate) fn not_an_object(path: &Path) -> Error {
        let why = "it is not a regular file";
        Error::NotFound {
            path: path.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidInput, why),
        }
    }

    /// Returns true if the path, or a directory on it, does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        match self {
            Error::NotFound { .. } => true,
            Error::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }

    /// Returns true if the process may not make the call.
    pub(crate) fn is_denied(&self) -> bool {
        let denied = io::ErrorKind::PermissionDenied;
        matches!(self, Error::Io { source, .. } if source.kind() == denied)
    }

    /// Returns true if a file got no second name, and can be renamed or copied instead: the
    /// filesystem has no hard links, the process may not make one, or the file has as many names
    /// as it can have.
    pub(crate) fn is_without_link(&self) -> bool {
        let refused = [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::MLINK];
        matches!(self, Error::Io { operation: "link", source, .. }
            if refused.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error())))
    }

    /// Returns true if a file could not be linked or renamed because the two names are not on one
    /// mount.
    pub(crate) fn is_across_mounts(&self) -> bool {
        matches!(self, Error::Io { operation: "link" | "rename", source, .. }
            if source.kind() == io::ErrorKind::CrossesDevices)
    }

    /// Returns true if a file could not be opened because the process or the system has no more
    /// descriptors.
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        let errno = match self {
            Error::Io {
                operation: "open",
                source,
                ..
            } => source.raw_os_error(),
            Error::Engine(error) => error.errno(),
            _ => None,
        };
        let none_left = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
        errno.is_some_and(|errno| none_left.contains(&errno))
    }
}

/// The error of the standard library with the same errno.
pub(crate) fn errno(error: nowait::Error) -> io::Error {
    match error.errno() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => error.into(),
    }
}
