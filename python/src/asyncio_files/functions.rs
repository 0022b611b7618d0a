//! Functions of `nowait.asyncio_files` that take a path, and the budget for its buffered files.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nowait::op::Statx;
use nowait::{Engine, OpenOptions, StatxMask};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustix::fs::CWD;

use super::awaitable::awaitable;
use super::budget;
use super::handle::Handle;
use super::in_engine::EngineRequest;
use super::operation::{Arguments, Begun, Request};
use super::stat::stat_request;
use crate::error::{call_error, library_error, os_error, os_error_of_two};
use crate::paths;
use crate::scandir::{Argument, ScandirIterator};

/// Opens a file with the flags of open(2) that a mode of open() has: an awaitable of a Handle.
#[pyfunction]
pub fn open_handle(py: Python<'_>, path: Py<PyAny>, flags: i32) -> PyResult<Py<PyAny>> {
    use nix::libc;
    let name = c_path(path.bind(py))?;
    let open = async move |engine: Engine| {
        let has = |flag| flags & flag == flag;
        let access = flags & libc::O_ACCMODE;
        let creates = has(libc::O_CREAT) && !has(libc::O_EXCL);
        let mut options = OpenOptions::new();
        options
            .read(access != libc::O_WRONLY)
            .write(access != libc::O_RDONLY && !has(libc::O_APPEND))
            .append(has(libc::O_APPEND))
            .truncate(has(libc::O_TRUNC))
            .create(creates)
            .create_new(has(libc::O_CREAT | libc::O_EXCL));
        let path = Path::new(OsStr::from_bytes(name.as_bytes()));
        // A cached path of a file that is only read is opened in the calling thread.
        let open = options.engine(&engine).open(path);
        open.await.map(|file| file.handle().clone())
    };
    let request = EngineRequest::new(Arguments::Path(path), open, |py, kept, opened| {
        let open = opened.map_err(|error| library_error(py, &error, &kept.path(py)))?;
        Bound::new(py, Handle::from(open))?.into_py_any(py)
    });
    awaitable(py, request)
}

/// Get the metadata of the file at `path`, as os.stat() does.
///
/// Returns:
///     An awaitable of os.stat_result.
///
/// Raises:
///     OSError: As os.stat().
#[pyfunction]
#[pyo3(signature = (path, *, follow_symlinks=true))]
pub fn stat(py: Python<'_>, path: Py<PyAny>, follow_symlinks: bool) -> PyResult<Py<PyAny>> {
    let name = c_path(path.bind(py))?;
    let flags = match follow_symlinks {
        true => 0,
        false => nix::libc::AT_SYMLINK_NOFOLLOW,
    };
    let statx = Statx::new(name, flags, StatxMask::BASIC_STATS);
    awaitable(py, stat_request(statx, Arguments::Path(path)))
}

/// Lists a directory as a whole in a worker: an awaitable of the iterator.
#[pyfunction]
pub fn scandir_in_worker(
    py: Python<'_>,
    path: Option<Bound<'_, PyAny>>,
    stat: bool,
) -> PyResult<Py<PyAny>> {
    let Argument {
        object,
        directory,
        options,
    } = Argument::new(py, path, stat)?;
    let listed = directory.clone();
    let list = async move |engine: Engine| {
        let list = move || listed.open(&options)?.collect::<nowait::Result<Vec<_>>>();
        engine.spawn_blocking(list).await?
    };
    let path = Arguments::Path(object.unbind());
    let request = EngineRequest::new(path, list, |py, kept, entries| {
        let path = kept.path(py);
        let entries = entries.map_err(|error| library_error(py, &error, &path))?;
        ScandirIterator::new(None, entries, directory, path).into_py_any(py)
    });
    awaitable(py, request)
}

/// Remove a file, as os.unlink() does.
///
/// Returns:
///     An awaitable of None.
///
/// Raises:
///     OSError: As os.unlink().
#[pyfunction]
pub fn unlink(py: Python<'_>, path: Py<PyAny>) -> PyResult<Py<PyAny>> {
    let name = paths::path(path.bind(py))?;
    let call = async move |engine: Engine| {
        engine
            .spawn_blocking(move || rustix::fs::unlink(&name))
            .await
    };
    let request = EngineRequest::new(Arguments::Path(path), call, |py, kept, done| {
        let done = done.map_err(|error| call_error(py, &error))?;
        done.map_err(|errno| os_error(py, errno, None, &kept.path(py)))?;
        Ok(py.None())
    });
    awaitable(py, request)
}

/// Rename a file, as os.rename() does.
///
/// Returns:
///     An awaitable of None.
///
/// Raises:
///     OSError: As os.rename().
#[pyfunction]
pub fn rename(py: Python<'_>, src: Py<PyAny>, dst: Py<PyAny>) -> PyResult<Py<PyAny>> {
    let names = (paths::path(src.bind(py))?, paths::path(dst.bind(py))?);
    let call = async move |engine: Engine| {
        let rename = move || rustix::fs::renameat(CWD, &names.0, CWD, &names.1);
        engine.spawn_blocking(rename).await
    };
    let request = EngineRequest::new(Arguments::Paths(src, dst), call, |py, kept, done| {
        let done = done.map_err(|error| call_error(py, &error))?;
        match (done, kept) {
            (Err(errno), Arguments::Paths(src, dst)) => Err(os_error_of_two(py, errno, src, dst)),
            _ => Ok(py.None()),
        }
    });
    awaitable(py, request)
}

/// Count a call that a buffered file answers from its buffer. False if the task must await pause().
#[pyfunction]
pub fn spend(py: Python<'_>, bytes: usize) -> PyResult<bool> {
    budget::spend(py, bytes)
}

/// Give way to the other tasks of the loop: an awaitable of None.
#[pyfunction]
pub fn pause(py: Python<'_>) -> PyResult<Py<PyAny>> {
    awaitable(py, Pause)
}

/// A request that does nothing after the pause.
struct Pause;

impl Request for Pause {
    fn begin(self: Box<Self>, py: Python<'_>) -> PyResult<Begun> {
        Ok(Begun::Done(py.None()))
    }
}

/// The path for a system call, without a null byte within.
fn c_path(object: &Bound<'_, PyAny>) -> PyResult<CString> {
    let path = paths::path(object)?.into_os_string().into_encoded_bytes();
    CString::new(path).map_err(|_| PyValueError::new_err("embedded null byte"))
}
