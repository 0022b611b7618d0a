//! `read_ahead` reads files into the page cache while the program loads them.
//!
//! ```text
//!  __enter__ ─► thread: ReadAhead of nowait-page-cache
//!  the program reads or maps the files
//!  __exit__ ──► stop, wait for the reads in flight, evict_after
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nowait_page_cache::{Chosen, Stop};
use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::call;
use crate::error::{forked, library_error, open_error};
use crate::failures::Failures;
use crate::hang;
use crate::paths::{Named, Paths, items, text};
use crate::safetensors;
use crate::unknown::Unknown;
use crate::warm::allowed;

/// Reads files into the page cache while the program loads them, in a context.
///
/// `with read_ahead(paths) as reading:` starts a thread that reads the missing parts of the files in
/// the order of the paths, each file from its beginning. The program loads the files meanwhile, by
/// read(2) or by a mapping, as with safetensors, torch.load or GGUF. Data that is cached is not read
/// again. The end of the context ends the thread. The budget is limited by the memory of the machine
/// and of the cgroup, as in warm(). If it does not hold all missing data, a window ahead of the
/// program is read, which is at most a quarter of the budget.
///
/// Args:
///     paths: A path, an open descriptor, or an iterable of them, as in warm().
///     budget: The maximum number of bytes to read before the program is seen to use them, as in
///         warm(). The use is seen in mappings of this process and in positions of its descriptors.
///     evict_after: At the end of the context, wait for the reads in flight, and evict the pages that
///         this object has read. Pages that were cached before stay.
///
/// Raises:
///     OSError: From the beginning of the context: a file in `paths` does not exist, or is no
///         regular file or directory. Later failures are in the `errors` of report(): the program's
///         own loader meets them, too.
///     ValueError: The budget is not valid, or a path has a null byte.
///
/// >>> import tempfile
/// >>> with tempfile.NamedTemporaryFile() as file:
/// ...     _ = file.write(bytes(100_000))
/// ...     file.flush()
/// ...     with read_ahead(file.name) as reading:
/// ...         data = open(file.name, "rb").read()
/// ...     reading.report().wasted_bytes
/// 0
#[pyclass(frozen, name = "read_ahead", module = "nowait")]
pub struct ReadAhead {
    /// Empty after `__clear__`.
    arguments: Mutex<Vec<Named>>,
    evict_after: bool,
    process: u32,
    shared: Arc<Shared>,
    has_begun: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state that the thread sees.
struct Shared {
    _paths: Paths,
    ahead: nowait_page_cache::ReadAhead,
    failures: Failures,
    /// The error that ended the thread.
    error: Mutex<Option<nowait::Error>>,
}

/// The work of a read_ahead. Sizes are in bytes.
#[pyclass(frozen, get_all, module = "nowait")]
pub struct ReadAheadReport {
    /// Bytes that were read.
    read_bytes: u64,
    /// Bytes that were in the page cache before.
    was_resident_bytes: u64,
    /// Bytes that were read and left the page cache again, and that this process was not seen to
    /// use. Its use is seen in mappings and in the positions of descriptors. Bytes that it has read
    /// with pread(2) count as wasted when they are evicted. Those that `evict_after` evicts are not
    /// wasted.
    wasted_bytes: u64,
    /// The bytes that were read per second, from the beginning to the end of the last read.
    bytes_per_s: u64,
    /// Missing bytes that were neither read nor used, because the budget does not hold all missing
    /// bytes.
    not_read_bytes: u64,
    /// The reason why they were not read; None if there are no such bytes.
    not_read_reason: Option<String>,
    /// Files of unknown residency. They are read completely, count as not resident and not wasted, and
    /// stay in the page cache.
    unknown: Vec<Py<Unknown>>,
    /// The number of files that failed.
    failed: u64,
    /// The first 1000 of these failures, each an OSError.
    errors: Vec<Py<PyAny>>,
}

#[pymethods]
impl ReadAheadReport {
    /// The traceback of an exception may refer to this object.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.errors.iter().try_for_each(|error| visit.call(error))
    }

    fn __repr__(&self) -> String {
        format!(
            "ReadAheadReport(read_bytes={}, was_resident_bytes={}, wasted_bytes={}, bytes_per_s={}, not_read_bytes={}, failed={})",
            self.read_bytes,
            self.was_resident_bytes,
            self.wasted_bytes,
            self.bytes_per_s,
            self.not_read_bytes,
            self.failed
        )
    }
}

#[pymethods]
impl ReadAhead {
    #[new]
    #[pyo3(signature = (paths, *, budget=None, evict_after=false))]
    fn new(
        paths: &Bound<'_, PyAny>,
        budget: Option<&Bound<'_, PyAny>>,
        evict_after: bool,
    ) -> PyResult<ReadAhead> {
        let _guard = hang::guard();
        let arguments = Named::all(paths)?;
        let chosen = arguments.iter().map(|named| (named.path.clone(), None));
        let chosen = chosen.collect();
        ReadAhead::of(arguments, chosen, budget, evict_after)
    }

    /// Reads chosen tensors of safetensors files ahead.
    ///
    /// Args:
    ///     path: A file of safetensors, or an index such as model.safetensors.index.json, whose files
    ///         are beside it.
    ///     tensors: An iterable of names of tensors. None chooses all.
    ///     budget: As in read_ahead().
    ///     evict_after: As in read_ahead().
    ///
    /// Returns:
    ///     A read_ahead of the byte ranges of these tensors, in the order of the files.
    ///
    /// Raises:
    ///     OSError: A file cannot be opened or read.
    ///     ValueError: A header or the index is not valid.
    ///     KeyError: There is no tensor of a name.
    #[staticmethod]
    #[pyo3(signature = (path, tensors=None, *, budget=None, evict_after=false))]
    fn safetensors(
        path: &Bound<'_, PyAny>,
        tensors: Option<&Bound<'_, PyAny>>,
        budget: Option<&Bound<'_, PyAny>>,
        evict_after: bool,
    ) -> PyResult<ReadAhead> {
        let _guard = hang::guard();
        let py = path.py();
        let path = crate::paths::path(path)?;
        let names = tensors.map(|tensors| {
            if tensors.is_instance_of::<PyString>() {
                let message = "tensors should be an iterable of names, not str";
                return Err(PyTypeError::new_err(message));
            }
            let names = items(tensors.try_iter()?).map(|name| name?.extract::<String>());
            names.collect::<PyResult<Vec<_>>>()
        });
        let names = names.transpose()?;
        let ranges = call::run(py, &Stop::default(), None, move |_| {
            safetensors::ranges(&path, names.as_deref())
        });
        let chosen = ranges?.map_err(|error| match error {
            safetensors::Error::Missing(name) => PyKeyError::new_err(name),
            safetensors::Error::Invalid(path, why) => {
                PyValueError::new_err(format!("{}: {why}", nowait::DisplayPath(&path)))
            }
            safetensors::Error::Open(path, why) => match text(py, &path) {
                Ok(path) => open_error(py, why, &path),
                Err(error) => error,
            },
        })?;
        let named = chosen.iter().map(|(path, _)| {
            let object = text(py, path)?.unbind();
            let path = path.clone();
            Ok(Named::new(object, path))
        });
        ReadAhead::of(named.collect::<PyResult<_>>()?, chosen, budget, evict_after)
    }

    fn __enter__<'py>(this: PyRef<'py, Self>, py: Python<'py>) -> PyResult<PyRef<'py, Self>> {
        let _guard = hang::guard();
        this.check_process()?;
        if this.has_begun.swap(true, Ordering::Relaxed) {
            return Err(PyRuntimeError::new_err(
                "a read_ahead can be used only once",
            ));
        }
        let shared = this.shared.clone();
        let its = shared.clone();
        let stop = shared.ahead.stop();
        let failures = Failures::new(&lock(&this.arguments), Some(stop));
        let looked = call::run(py, stop, None, move |_| {
            its.ahead.look(&failures);
            failures
        });
        looked?.finish(py, &|i| this.argument(py, i))?;
        let thread = call::start(move || {
            if let Err(error) = shared.ahead.run(&shared.failures) {
                *lock(&shared.error) = Some(error);
            }
        })?;
        *lock(&this.thread) = Some(thread);
        Ok(this)
    }

    /// Ends the thread. An exception of the context is not changed.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let _guard = hang::guard();
        let thread = lock(&self.thread).take();
        // A forked child has no thread, and evicts nothing that its parent reads.
        let Some(thread) = thread.filter(|_| std::process::id() == self.process) else {
            return Ok(());
        };
        self.shared.ahead.stop().request();
        if self.evict_after {
            // Data arrives until the last read in flight has ended. After an interrupt, the thread
            // that evicts waits alone.
            let shared = self.shared.clone();
            call::run(py, &Stop::default(), None, move |_| {
                while !shared.ahead.wait(Duration::MAX) {}
                shared.ahead.evict(&Stop::default());
            })?;
        }
        // A thread that waits for a device ends when it answers.
        if py.detach(|| self.shared.ahead.wait(call::PATIENCE)) {
            // A panic is reported on standard error. Data that is not read ahead is no failure.
            let _ = py.detach(|| thread.join());
        }
        Ok(())
    }

    /// The work so far, as a ReadAheadReport.
    fn report(&self, py: Python<'_>) -> PyResult<ReadAheadReport> {
        let _guard = hang::guard();
        self.check_process()?;
        let shared = self.shared.clone();
        let stop = Stop::default();
        let its = stop.clone();
        let report = call::run(py, &stop, None, move |_| shared.ahead.report(&its))?;
        if let Some(error) = &*lock(&self.shared.error) {
            return Err(library_error(py, error, py.None().bind(py)));
        }
        let (failed, errors) = self.shared.failures.finish(py, &|i| self.argument(py, i))?;
        Ok(ReadAheadReport {
            read_bytes: report.read_bytes,
            was_resident_bytes: report.was_resident_bytes,
            wasted_bytes: report.wasted_bytes,
            bytes_per_s: report.bytes_per_s,
            not_read_bytes: report.not_read_bytes,
            not_read_reason: report.not_read_reason,
            unknown: Unknown::all(py, &report.unknown)?,
            failed,
            errors,
        })
    }

    /// A path may refer to this object.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(arguments) = self.arguments.try_lock() {
            for argument in arguments.iter() {
                visit.call(&argument.object)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        let _guard = hang::guard();
        self.shared.ahead.stop().request();
        let arguments = self
            .arguments
            .try_lock()
            .map(|mut all| std::mem::take(&mut *all));
        // The destructors of the program's objects run without the lock.
        drop(arguments);
    }
}

impl ReadAhead {
    fn of(
        arguments: Vec<Named>,
        chosen: Vec<Chosen>,
        budget: Option<&Bound<'_, PyAny>>,
        evict_after: bool,
    ) -> PyResult<ReadAhead> {
        let stop = Stop::default();
        Ok(ReadAhead {
            evict_after,
            process: std::process::id(),
            shared: Arc::new(Shared {
                _paths: Paths::of(&arguments),
                failures: Failures::new(&arguments, None),
                ahead: nowait_page_cache::ReadAhead::new(chosen, allowed(budget)?, stop),
                error: Mutex::default(),
            }),
            arguments: Mutex::new(arguments),
            has_begun: AtomicBool::new(false),
            thread: Mutex::new(None),
        })
    }

    /// The object of an argument.
    fn argument(&self, py: Python<'_>, i: usize) -> Py<PyAny> {
        let arguments = lock(&self.arguments);
        let argument = arguments
            .get(i)
            .map(|argument| argument.object.clone_ref(py));
        argument.unwrap_or_else(|| py.None())
    }

    fn check_process(&self) -> PyResult<()> {
        match std::process::id() == self.process {
            true => Ok(()),
            false => Err(forked("this read_ahead")),
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.__clear__();
    }
}

/// The state is consistent after each change. No lock is held while this thread detaches from the
/// interpreter.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
