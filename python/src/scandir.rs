//! `scandir` lists one directory, for a program with or without an event loop.

use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, Waker};
use std::vec;

use nowait::{Scan, StatxMask, scan};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyDeprecationWarning, PyResourceWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::dir_entry::{DirEntry, Directory, Listed};
use crate::error::{forked, library_error, os_error};
use crate::hang;
use crate::parked::Unpark;
use crate::paths;

/// The entries of a directory.
#[pyclass(frozen, weakref, module = "nowait")]
pub struct ScandirIterator {
    state: Mutex<Option<State>>,
    directory: Arc<Directory>,
    path: Py<PyAny>,
    process: u32,
}

struct State {
    /// The rest of the directory, if it was not listed as a whole.
    scan: Option<Scan>,
    batch: vec::IntoIter<scan::DirEntry>,
}

/// The directory that an argument names.
pub struct Argument<'py> {
    /// The path or the descriptor. Exceptions have it as their file name.
    pub object: Bound<'py, PyAny>,
    pub directory: Arc<Directory>,
    pub options: scan::Options,
}

/// List a directory, with the interface and the results of os.scandir().
///
/// The entries are listed, and their metadata is read, by several threads at the same time without
/// the GIL. entry.stat() then needs no system call, and returns what the file was when it was
/// listed. The order is arbitrary.
///
/// Args:
///     path: The directory: str, bytes, os.PathLike or an open descriptor.
///     stat: Read the metadata of each entry. With False, entry.stat() reads it.
///
/// Returns:
///     An iterator of `DirEntry`, which is also a context manager.
///
/// Raises:
///     OSError: As os.scandir(). From next(): the directory cannot be read.
///     ValueError: From next(): another thread is in next().
///
/// >>> import tempfile
/// >>> with tempfile.TemporaryDirectory() as directory:
/// ...     _ = open(f"{directory}/a", "w").write("abc")
/// ...     with scandir(directory) as entries:
/// ...         [(entry.name, entry.stat().st_size) for entry in entries]
/// [('a', 3)]
#[pyfunction]
#[pyo3(signature = (path=None, *, stat=true))]
pub fn scandir(
    py: Python<'_>,
    path: Option<Bound<'_, PyAny>>,
    stat: bool,
) -> PyResult<ScandirIterator> {
    let _guard = hang::guard();
    let Argument {
        object,
        directory,
        options,
    } = Argument::new(py, path, stat)?;
    let opened = py.detach(|| directory.open(&options));
    let scan = opened.map_err(|error| library_error(py, &error, &object))?;
    Ok(ScandirIterator::new(
        Some(scan),
        Vec::new(),
        directory,
        object,
    ))
}

impl<'py> Argument<'py> {
    pub fn new(py: Python<'py>, path: Option<Bound<'py, PyAny>>, stat: bool) -> PyResult<Self> {
        let mut path = match path {
            Some(path) => path,
            None => ".".into_pyobject(py)?.into_any(),
        };
        if let Some(bytes) = bytes_of_buffer(&path)? {
            path = bytes;
        }
        let mut options = scan::Options::new();
        if stat {
            options = options.metadata(StatxMask::BASIC_STATS);
        }
        let directory = match paths::descriptor(&path)? {
            Some(fd) => {
                let kept = rustix::io::fcntl_dupfd_cloexec(paths::open(&path, fd)?, 0);
                Directory::of_descriptor(kept.map_err(|errno| os_error(py, errno, None, &path))?)
            }
            None => {
                let name = paths::path(&path)?;
                path = py.import("os")?.call_method1("fspath", (path,))?;
                let is_bytes = path.is_instance_of::<PyBytes>();
                Directory::of_path(name.as_os_str().as_encoded_bytes(), is_bytes)
            }
        };
        Ok(Argument {
            object: path,
            directory: Arc::new(directory),
            options,
        })
    }
}

/// The path in a buffer that is no `bytes`, such as a bytearray. os.scandir() takes it before Python
/// 3.12.
fn bytes_of_buffer<'py>(path: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = path.py();
    let is_path = path.is_instance_of::<PyString>()
        || path.is_instance_of::<PyBytes>()
        || path.hasattr("__fspath__")?;
    if is_path || py.version_info() >= (3, 12) || PyUntypedBuffer::get(path).is_err() {
        return Ok(None);
    }
    let name = path.get_type().name()?;
    let message =
        format!("scandir: path should be string, bytes, os.PathLike, integer or None, not {name}");
    let category = py.get_type::<PyDeprecationWarning>();
    PyErr::warn(py, &category, &CString::new(message)?, 1)?;
    py.get_type::<PyBytes>().call1((path,)).map(Some)
}

impl ScandirIterator {
    /// The entries that were listed, and then the rest of the directory.
    pub fn new(
        rest: Option<Scan>,
        listed: Vec<scan::DirEntry>,
        directory: Arc<Directory>,
        path: Bound<'_, PyAny>,
    ) -> ScandirIterator {
        let batch = listed.into_iter();
        ScandirIterator {
            state: Mutex::new(Some(State { scan: rest, batch })),
            directory,
            path: path.unbind(),
            process: std::process::id(),
        }
    }

    /// # Errors
    /// ValueError while another thread is in next(), as generators raise.
    fn lock(&self) -> PyResult<MutexGuard<'_, Option<State>>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(PyValueError::new_err("iterator already executing"))
            }
        }
    }
}

#[pymethods]
impl ScandirIterator {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<DirEntry>> {
        let _guard = hang::guard();
        let mut state = self.lock()?;
        let Some(State { scan, batch }) = &mut *state else {
            return Ok(None);
        };
        if scan.is_some() && std::process::id() != self.process {
            return Err(forked("this iterator of scandir()"));
        }
        loop {
            if let Some(entry) = batch.next() {
                return DirEntry::new(py, &self.directory, Listed::Scanned(entry)).map(Some);
            }
            let found = match scan {
                Some(scan) => next(py, scan)?,
                None => None,
            };
            match found {
                Some(Ok(next)) => *batch = next.iter().collect::<Vec<_>>().into_iter(),
                end => {
                    *state = None;
                    let error = end.and_then(Result::err);
                    let error = error.map(|e| library_error(py, &e, self.path.bind(py)));
                    return error.map_or(Ok(None), Err);
                }
            }
        }
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close()
    }

    /// Close the directory. The iterator has no more entries.
    fn close(&self) -> PyResult<()> {
        drop(self.lock()?.take());
        Ok(())
    }
}

impl Drop for ScandirIterator {
    /// As an iterator of os.scandir(), it warns if it was neither read to its end nor closed.
    fn drop(&mut self) {
        let state = self.lock().ok().and_then(|mut state| state.take());
        let scan = state.and_then(|state| state.scan);
        if scan.is_none() || std::process::id() != self.process {
            return;
        }
        let _guard = hang::guard();
        Python::attach(|py| {
            let category = py.get_type::<PyResourceWarning>();
            if let Err(error) = PyErr::warn(py, &category, c"unclosed scandir iterator", 1) {
                error.write_unraisable(py, None);
            }
        });
    }
}

/// Waits for the next batch, and checks for signals meanwhile.
fn next(py: Python<'_>, scan: &mut Scan) -> PyResult<Option<nowait::Result<scan::Batch>>> {
    let waker = Waker::from(Unpark::this_thread());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(batch) = scan.poll_batch(&mut context) {
            return Ok(batch);
        }
        py.detach(Unpark::wait);
        py.check_signals()?;
    }
}
