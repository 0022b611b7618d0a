//! Arguments that name files: str, bytes, os.PathLike, and open descriptors.
#![allow(
    unsafe_code,
    reason = "a descriptor that is a number is borrowed or taken over"
)]

use std::ffi::OsString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyIterator, PyString};
use rustix::io::Errno;

use crate::error::os_error;
use crate::hang;

/// The time between two checks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// A file that an argument names.
pub struct Named {
    /// The argument. Exceptions have it as their file name.
    pub object: Py<PyAny>,
    /// The path; for a descriptor, that of its duplicate below /proc.
    pub path: PathBuf,
    /// The duplicate of a descriptor. The program may close its own, and the number may then be
    /// another file.
    duplicate: Option<Arc<OwnedFd>>,
}

/// The paths of arguments, for a thread. An interrupted call returns before its thread ends: the
/// duplicates of descriptors stay open as long as the thread has the paths.
pub struct Paths {
    pub paths: Vec<PathBuf>,
    _duplicates: Vec<Arc<OwnedFd>>,
}

impl Paths {
    /// The paths of all arguments.
    pub fn of(arguments: &[Named]) -> Paths {
        let duplicates = arguments.iter().filter_map(|named| named.duplicate.clone());
        Paths {
            paths: arguments.iter().map(|named| named.path.clone()).collect(),
            _duplicates: duplicates.collect(),
        }
    }
}

impl Named {
    /// A path, and the object that exceptions have.
    pub fn new(object: Py<PyAny>, path: PathBuf) -> Named {
        Named {
            object,
            path,
            duplicate: None,
        }
    }

    /// A path or a descriptor.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Named> {
        let duplicate = match descriptor_or_file(object)? {
            Some(fd) => {
                let duplicate = rustix::io::fcntl_dupfd_cloexec(open(object, fd)?, 0);
                Some(duplicate.map_err(|errno| os_error(object.py(), errno, None, object))?)
            }
            None => None,
        };
        let path = match &duplicate {
            // Opening it again leaves the descriptor's position as it is.
            Some(fd) => format!("/proc/self/fd/{}", fd.as_raw_fd()).into(),
            None => path(object)?,
        };
        Ok(Named {
            object: object.clone().unbind(),
            path,
            duplicate: duplicate.map(Arc::new),
        })
    }

    /// One path or descriptor, or an iterable of them.
    pub fn all(paths: &Bound<'_, PyAny>) -> PyResult<Vec<Named>> {
        if is_one(paths)? {
            return Ok(vec![Named::of(paths)?]);
        }
        let paths = paths.try_iter().map_err(|_| wrong_type(paths))?;
        items(paths).map(|path| Named::of(&path?)).collect()
    }
}

/// The items of an iterator. An iterator that is written in C may have no end.
pub fn items<'py>(
    iterator: Bound<'py, PyIterator>,
) -> impl Iterator<Item = PyResult<Bound<'py, PyAny>>> {
    let py = iterator.py();
    let mut signals = Signals::new();
    iterator.map(move |item| {
        signals.check(py)?;
        item
    })
}

/// Checks for signals from time to time, and lets other threads run. A loop that is written in C does
/// not do so.
pub struct Signals(Instant);

impl Signals {
    /// The first check is after an interval.
    pub fn new() -> Signals {
        Signals(Instant::now())
    }

    /// Does nothing before the time of the next check.
    ///
    /// # Errors
    /// The exception of a handler.
    pub fn check(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.0.elapsed() >= SIGNAL_INTERVAL {
            py.detach(std::thread::yield_now);
            py.check_signals()?;
            self.0 = Instant::now();
        }
        Ok(())
    }
}

/// The value of a descriptor; `None` for other objects.
///
/// # Errors
/// OverflowError for a number that is no C int.
pub fn descriptor(object: &Bound<'_, PyAny>) -> PyResult<Option<RawFd>> {
    match object.is_instance_of::<PyInt>() {
        true => object.extract().map(Some),
        false => Ok(None),
    }
}

/// As [`descriptor`]; for an open file the result of its method fileno().
///
/// # Errors
/// As [`descriptor`], and the exception of that method, such as that of a closed file.
pub fn descriptor_or_file(object: &Bound<'_, PyAny>) -> PyResult<Option<RawFd>> {
    let _guard = hang::guard();
    match is_file(object)? {
        true => object.call_method0("fileno")?.extract().map(Some),
        false => descriptor(object),
    }
}

/// True for an object with a method fileno() that is no path.
fn is_file(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!object.hasattr("__fspath__")? && object.hasattr("fileno")?)
}

/// Checks that a descriptor is open.
///
/// # Errors
/// OSError with EBADF.
pub fn open<'fd>(object: &Bound<'_, PyAny>, fd: RawFd) -> PyResult<BorrowedFd<'fd>> {
    if fd < 0 {
        return Err(os_error(object.py(), Errno::BADF, None, object));
    }
    // SAFETY: the number is not -1. A number that is closed or is another file meanwhile leads to
    // EBADF or to an answer about that file, as for each function of Python's `os`.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    match rustix::io::fcntl_getfd(fd) {
        Ok(_) => Ok(fd),
        Err(errno) => Err(os_error(object.py(), errno, None, object)),
    }
}

/// Takes over an open descriptor.
///
/// # Errors
/// OSError with EBADF.
pub fn take(object: &Bound<'_, PyAny>, fd: RawFd) -> PyResult<OwnedFd> {
    let fd = open(object, fd)?.as_raw_fd();
    // SAFETY: the descriptor is open, and the program gives it away.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The bytes of a path, as `os.fsencode` makes them: surrogates become the bytes that they stand
/// for.
pub fn path(object: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let _guard = hang::guard();
    let path: OsString = if let Ok(bytes) = object.cast::<PyBytes>() {
        OsString::from_vec(bytes.as_bytes().to_vec())
    } else if object.is_instance_of::<PyString>() {
        object.extract()?
    } else if object.hasattr("__fspath__")? {
        let inner = object
            .py()
            .import("os")?
            .call_method1("fspath", (object,))?;
        return path(&inner);
    } else {
        return Err(wrong_type(object));
    };
    match path.as_bytes().contains(&0) {
        true => Err(PyValueError::new_err("embedded null byte")),
        false => Ok(path.into()),
    }
}

/// A path as Python's `os` returns it: bytes that are not UTF-8 are surrogates.
pub fn text<'py>(py: Python<'py>, path: &Path) -> PyResult<Bound<'py, PyAny>> {
    Ok(path.as_os_str().into_pyobject(py)?.into_any())
}

/// True for one path or descriptor.
fn is_one(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyInt>()
        || object.hasattr("__fspath__")?
        || is_file(object)?)
}

fn wrong_type(object: &Bound<'_, PyAny>) -> PyErr {
    let name = object.get_type().name().map(|name| name.to_string());
    PyTypeError::new_err(format!(
        "a path should be str, bytes, os.PathLike, an open descriptor (int) or an open file, not {}",
        name.unwrap_or_default()
    ))
}
