//! `read_files` reads many small files.
//!
//! ```text
//!  iterable of paths ─► Paths ─► nowait::read_files (workers) ─► poll ─► (path, bytes)
//! ```
//! The calling thread takes paths from the iterable while it is attached to the interpreter, and
//! detaches to wait. The workers never attach.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::mem::take;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};

use nowait::ErrorKind;
use nowait::read_files::{FileContents, Options};
use nowait::scan::Canceller;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::error::{forked, library_error};
use crate::hang;
use crate::parked::Unpark;
use crate::paths::{Signals, path};

/// The files of read_files(), an iterator of pairs (path, bytes).
#[pyclass(frozen, module = "nowait")]
pub struct ReadFiles {
    reading: Mutex<Reading>,
    given: Arc<Mutex<Given>>,
    canceller: Canceller,
    process: u32,
}

/// The files that are being read.
struct Reading {
    files: nowait::ReadFiles<Paths>,
    /// A file that was complete when the iterable raised an exception.
    ready: Option<nowait::Result<FileContents>>,
    signals: Signals,
}

/// The paths that were taken from the iterable.
struct Given {
    /// The iterable's iterator; `None` after its end.
    paths: Option<Py<PyIterator>>,
    /// The objects of the paths that are being read. An object that is no valid path has the path
    /// [`INVALID`], and an exception.
    objects: HashMap<PathBuf, VecDeque<PyResult<Py<PyAny>>>>,
    /// The exception of the iterable.
    error: Option<PyErr>,
}

/// A path that no file has.
const INVALID: &str = "\0";

impl Given {
    /// The next path, with its object remembered.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<PathBuf>> {
        let Some(paths) = &self.paths else {
            return Ok(None);
        };
        let Some(object) = paths.bind(py).clone().next() else {
            self.paths = None;
            return Ok(None);
        };
        let object = object?;
        let (path, object) = match path(&object) {
            Ok(path) => (path, Ok(object.unbind())),
            Err(error)
                if error.is_instance_of::<PyTypeError>(py)
                    || error.is_instance_of::<PyValueError>(py) =>
            {
                (INVALID.into(), Err(error))
            }
            // An exception of a method __fspath__, or of a signal handler meanwhile.
            Err(error) => return Err(error),
        };
        let objects = self.objects.entry(path.clone()).or_default();
        objects.push_back(object);
        Ok(Some(path))
    }

    /// The object of a path that was read.
    ///
    /// # Errors
    /// The exception of an object that is not a valid path.
    fn take(&mut self, path: PathBuf) -> PyResult<Option<Py<PyAny>>> {
        let Entry::Occupied(mut objects) = self.objects.entry(path) else {
            return Ok(None);
        };
        let object = objects.get_mut().pop_front();
        if objects.get().is_empty() {
            objects.remove();
        }
        object.transpose()
    }
}

/// The paths for the library, which takes them in the calling thread.
struct Paths(Arc<Mutex<Given>>);

impl Iterator for Paths {
    type Item = PathBuf;

    fn next(&mut self) -> Option<PathBuf> {
        let mut given = lock(&self.0);
        if given.error.is_some() {
            return None;
        }
        Python::attach(|py| match given.next(py) {
            Ok(path) => path,
            Err(error) => {
                given.error = Some(error);
                given.paths = None;
                None
            }
        })
    }
}

/// Reads many files, several at the same time.
///
/// The files are opened and read by threads of the process, without the GIL. They are returned in
/// the order in which they are complete. At most 1024 files and about 32 MiB are in memory before
/// they are returned; a larger file is read alone. Paths are taken from the iterable as they are
/// needed. Symbolic links are followed.
///
/// An exception of one file, or of an object that is not a valid path, does not end the iterator: next()
/// continues with the other files. An exception of the iterable comes at once. No path is taken after
/// it, and next() returns the files whose paths were taken before. In a process that fork() has created, call read_files() anew: the parent's iterators raise
/// RuntimeError there.
///
/// Args:
///     paths: An iterable of paths: str, bytes or os.PathLike.
///     ordered: Return the files in the order of the paths. A slow file delays those after it.
///
/// Returns:
///     An iterator of pairs (path, bytes). The path is the object that the iterable gave. It is closed by
///     close(), and at the end of a `with` statement.
///
/// Raises:
///     OSError: From next(): a file cannot be read. It has errno and filename, and is of the
///         subclass that open() raises. FIFOs, sockets and devices are not opened.
///     MemoryError: From next(): there is no memory for the contents of a file.
///     TypeError: From next(): an object is not a path.
///     ValueError: From next(): a path has a null byte, or another thread is in next().
///
/// >>> import os, tempfile
/// >>> with tempfile.TemporaryDirectory() as directory:
/// ...     paths = [os.path.join(directory, str(i)) for i in range(3)]
/// ...     for path in paths:
/// ...         with open(path, "wb") as file:
/// ...             _ = file.write(b"abc")
/// ...     sum(len(data) for path, data in read_files(paths))
/// 9
#[pyfunction]
#[pyo3(signature = (paths, *, ordered=false))]
pub fn read_files(paths: &Bound<'_, PyAny>, ordered: bool) -> PyResult<ReadFiles> {
    let _guard = hang::guard();
    let given = Arc::new(Mutex::new(Given {
        paths: Some(paths.try_iter()?.unbind()),
        objects: HashMap::new(),
        error: None,
    }));
    let files = Options::new().in_order(ordered).read(Paths(given.clone()));
    Ok(ReadFiles {
        canceller: files.canceller(),
        reading: Mutex::new(Reading {
            files,
            ready: None,
            signals: Signals::new(),
        }),
        given,
        process: std::process::id(),
    })
}

#[pymethods]
impl ReadFiles {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// The iterable may refer to this iterator.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(given) = self.given.try_lock() {
            visit.call(&given.paths)?;
            for object in given.objects.values().flatten().flatten() {
                visit.call(object)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let _guard = hang::guard();
        let given = self.given.try_lock();
        let objects = given.map(|mut given| (given.paths.take(), take(&mut given.objects)));
        // The destructors of the program's objects run without the lock.
        drop(objects);
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(Py<PyAny>, Bound<'py, PyBytes>)>> {
        let _guard = hang::guard();
        if std::process::id() != self.process {
            return Err(forked("this iterator of read_files()"));
        }
        let mut reading = match self.reading.try_lock() {
            Ok(reading) => reading,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // A generator raises the same.
            Err(TryLockError::WouldBlock) => {
                return Err(PyValueError::new_err("iterator already executing"));
            }
        };
        match reading.next(py, &self.given)? {
            None => Ok(None),
            Some(Ok(contents)) => self.contents(py, contents).map(Some),
            // The reading was closed.
            Some(Err(error)) if error.kind() == ErrorKind::Cancelled => Ok(None),
            Some(Err(error)) => {
                let object = match error.path() {
                    Some(path) => lock(&self.given).take(path.to_owned())?,
                    None => None,
                };
                let object = object.unwrap_or_else(|| py.None());
                Err(library_error(py, &error, object.bind(py)))
            }
        }
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }

    /// End the reads. The iterator has no more files.
    fn close(&self) {
        self.canceller.cancel();
        // Another thread that has the lock is in next(), and has no file of this kind.
        if let Ok(mut reading) = self.reading.try_lock() {
            reading.ready = None;
        }
        self.__clear__();
    }
}

impl Drop for ReadFiles {
    fn drop(&mut self) {
        self.__clear__();
    }
}

impl ReadFiles {
    fn contents<'py>(
        &self,
        py: Python<'py>,
        contents: FileContents,
    ) -> PyResult<(Py<PyAny>, Bound<'py, PyBytes>)> {
        let (path, contents) = contents.into_parts();
        let object = lock(&self.given).take(path)?;
        let bytes = PyBytes::new_with(py, contents.len(), |bytes| {
            bytes.copy_from_slice(&contents);
            Ok(())
        })?;
        Ok((object.unwrap_or_else(|| py.None()), bytes))
    }
}

impl Reading {
    /// Waits for the next file. Checks for signals meanwhile, also if files are always ready.
    ///
    /// # Errors
    /// The exception of the iterable or of a signal handler. No file is lost.
    fn next(
        &mut self,
        py: Python<'_>,
        given: &Mutex<Given>,
    ) -> PyResult<Option<nowait::Result<FileContents>>> {
        self.signals.check(py)?;
        let waker = Waker::from(Unpark::this_thread());
        let mut context = Context::from_waker(&waker);
        loop {
            let polled = match self.ready.take() {
                None => self.files.poll_next_file(&mut context),
                ready => Poll::Ready(ready),
            };
            if let Some(error) = lock(given).error.take() {
                if let Poll::Ready(read) = polled {
                    self.ready = read;
                }
                return Err(error);
            }
            if let Poll::Ready(read) = polled {
                return Ok(read);
            }
            py.detach(Unpark::wait);
            py.check_signals()?;
        }
    }
}

/// The state of the paths, which is consistent after each change.
fn lock(given: &Mutex<Given>) -> std::sync::MutexGuard<'_, Given> {
    given.lock().unwrap_or_else(PoisonError::into_inner)
}
