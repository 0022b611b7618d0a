//! Python exceptions for errors of the library: the OSError subclass for the errno, with errno,
//! text and file name.

use nowait::ErrorKind;
use nowait_page_cache::OpenError;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use rustix::io::Errno;

/// An OSError. The type is the subclass that Python has for the errno.
pub fn os_error(
    py: Python<'_>,
    errno: Errno,
    text: Option<String>,
    filename: &Bound<'_, PyAny>,
) -> PyErr {
    let text = text.map_or_else(|| strerror(py, errno), Ok);
    match text {
        Ok(text) => PyOSError::new_err((errno.raw_os_error(), text, filename.clone().unbind())),
        Err(error) => error,
    }
}

/// An OSError of a call that has two paths.
pub fn os_error_of_two(py: Python<'_>, errno: Errno, first: Py<PyAny>, second: Py<PyAny>) -> PyErr {
    match strerror(py, errno) {
        // The third argument after the text is an error number of Windows.
        Ok(text) => PyOSError::new_err((errno.raw_os_error(), text, first, py.None(), second)),
        Err(error) => error,
    }
}

/// An error of the library that concerns a file.
pub fn library_error(py: Python<'_>, error: &nowait::Error, filename: &Bound<'_, PyAny>) -> PyErr {
    match (error.kind(), error.errno().map(Errno::from_raw_os_error)) {
        (ErrorKind::Forked, _) => forked("this object"),
        (_, Some(Errno::NOMEM)) => PyMemoryError::new_err(()),
        (_, Some(errno)) => os_error(py, errno, None, filename),
        (ErrorKind::NotRegular, None) => {
            let text = "not a regular file".to_owned();
            os_error(py, Errno::INVAL, Some(text), filename)
        }
        (_, None) => os_error(py, Errno::INVAL, Some(error.to_string()), filename),
    }
}

/// The error of a file that was not opened.
pub fn open_error(py: Python<'_>, why: OpenError, filename: &Bound<'_, PyAny>) -> PyErr {
    match why {
        OpenError::Os(errno) => os_error(py, errno, None, filename),
        OpenError::Changed(_) => {
            let text = "not a regular file or a block device".to_owned();
            os_error(py, Errno::INVAL, Some(text), filename)
        }
        OpenError::Leased { .. } => os_error(py, Errno::AGAIN, Some(why.to_string()), filename),
    }
}

/// The error for an object that a forked child has inherited.
pub fn forked(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!(
        "{what} was created before fork(), and its threads are in the parent process: \
         create another one in this process"
    ))
}

/// The text of the C library for an errno, without Rust's addition of the number.
fn strerror(py: Python<'_>, errno: Errno) -> PyResult<String> {
    let strerror = py.import("os")?.getattr("strerror")?;
    strerror.call1((errno.raw_os_error(),))?.extract()
}

/// An error of the library in an operation of an open file. It has no file name, as those of
/// Python's file objects.
pub fn call_error(py: Python<'_>, error: &nowait::Error) -> PyErr {
    library_error(py, error, py.None().bind(py))
}
