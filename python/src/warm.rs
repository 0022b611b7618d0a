//! `warm` reads the missing parts of files into the page cache.

use nowait::walk::Options;
use nowait_page_cache::size::Size;
use nowait_page_cache::{
    Allowed, Kinds, Limits, Prefetcher, Progress, Request, SeenInodes, Stop, Summary, Total,
    engine, visit,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyString};
use pyo3::{PyTraverseError, PyVisit};

use crate::call;
use crate::error::library_error;
use crate::failures::Failures;
use crate::hang;
use crate::paths::{Named, Paths};
use crate::unknown::Unknown;

/// The result of warm(). Sizes are in bytes, and do not count holes.
#[pyclass(frozen, get_all, module = "nowait")]
pub struct WarmResult {
    /// The number of processed files. A file with several names counts once.
    files: u64,
    /// The size of the files.
    bytes: u64,
    /// Bytes that were in the page cache before, in files of known residency.
    cached_before: u64,
    /// Bytes that were read.
    read_bytes: u64,
    /// Bytes that were in the page cache when their file was finished, in files of known residency.
    cached_after: u64,
    /// Missing bytes that were not read because of the budget.
    not_read_bytes: u64,
    /// The reason why missing bytes were not read; None if everything was read.
    not_read_reason: Option<String>,
    /// Files of unknown residency, which were read completely.
    unknown: Vec<Py<Unknown>>,
    /// The number of files below directories that failed.
    failed: u64,
    /// The first 1000 of these failures, each an OSError.
    errors: Vec<Py<PyAny>>,
    /// The time that the call took.
    seconds: f64,
    /// The backend that read: "uring" or "threads".
    backend: &'static str,
}

#[pymethods]
impl WarmResult {
    /// The traceback of an exception may refer to this object.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.errors.iter().try_for_each(|error| visit.call(error))
    }

    fn __repr__(&self) -> String {
        format!(
            "WarmResult(files={}, bytes={}, cached_before={}, read_bytes={}, cached_after={}, not_read_bytes={}, failed={})",
            self.files,
            self.bytes,
            self.cached_before,
            self.read_bytes,
            self.cached_after,
            self.not_read_bytes,
            self.failed
        )
    }
}

/// Reads the missing parts of files into the page cache.
///
/// Only ranges that are not cached are read, and no holes. The budget limits the bytes that are
/// read, so that new data does not evict data that was read before. It is computed again while the
/// call runs, from the available memory of the machine and from the memory limits of the cgroup and
/// its parents. Reading stops if the first files are evicted again.
///
/// The GIL is released. Ctrl-C raises KeyboardInterrupt within 0.2 seconds, also while the device
/// does not answer.
///
/// Args:
///     paths: A path, an open descriptor, an open file, or an iterable of them. A path is str, bytes or
///         os.PathLike. All regular files below a directory are read. Symbolic links given here are
///         followed, those below a directory are not. A file is opened again: fcntl(2) locks that
///         this process has on it are lost, as after any close(2) of the file.
///     budget: The maximum number of bytes to read, such as 2**30 or "4G", or a share of the
///         available memory, such as "50%". The default is "75%".
///     rate: The maximum number of bytes per second, such as 50 * 2**20, 50e6 or "50M".
///     progress: A callable. It gets a Progress about 20 times per second, in the calling thread.
///         An exception that it raises ends the call. A call that takes longer than a second counts
///         the size of all files in another thread; Progress.percent is None until that is done.
///
/// Returns:
///     A WarmResult. Failures of files below directories are in its `errors`.
///
/// Raises:
///     OSError: A file in `paths` cannot be opened or read. It has errno and filename, and is of
///         the subclass that open() raises.
///     ValueError: The budget or the rate is not valid, or a path has a null byte.
///
/// >>> import tempfile
/// >>> with tempfile.NamedTemporaryFile() as file:
/// ...     _ = file.write(bytes(100_000))
/// ...     file.flush()
/// ...     warm(file.name).cached_after
/// 100000
#[pyfunction]
#[pyo3(signature = (paths, *, budget=None, rate=None, progress=None))]
pub fn warm(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    budget: Option<&Bound<'_, PyAny>>,
    rate: Option<&Bound<'_, PyAny>>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<WarmResult> {
    let _guard = hang::guard();
    let limits = Limits {
        budget: allowed(budget)?,
        rate: rate.map(per_second).transpose()?,
        ..Limits::default()
    };
    if let Some(progress) = progress.filter(|progress| !progress.is_callable()) {
        let name = progress.get_type().name()?;
        let message = format!("progress should be callable, not {name}");
        return Err(PyTypeError::new_err(message));
    }
    let arguments = Named::all(paths)?;
    let stop = Stop::default();
    let failures = Failures::new(&arguments, Some(&stop));
    let paths = Paths::of(&arguments);
    let its = stop.clone();
    let is_watched = progress.is_some();
    let read = move |report: &mut dyn FnMut(Progress)| {
        let read = read(&paths, is_watched, limits, &failures, report, &its);
        (read, failures)
    };
    let (read, failures) = call::run(py, &stop, progress, read)?;
    let (failed, errors) = failures.finish(py, &|i| arguments[i].object.clone_ref(py))?;
    let summary = read.map_err(|error| library_error(py, &error, py.None().bind(py)))?;
    Ok(WarmResult {
        files: summary.files,
        bytes: summary.data,
        cached_before: summary.cached_before,
        read_bytes: summary.read_bytes,
        cached_after: summary.cached_after,
        not_read_bytes: summary.not_read_bytes,
        unknown: Unknown::all(py, &summary.unknown)?,
        not_read_reason: summary.not_read_reason,
        failed,
        errors,
        seconds: summary.seconds,
        backend: summary.backend,
    })
}

fn read(
    Paths { paths, .. }: &Paths,
    is_watched: bool,
    limits: Limits,
    failures: &Failures,
    report: &mut dyn FnMut(Progress),
    stop: &Stop,
) -> nowait::Result<Summary> {
    let seen = SeenInodes::new(paths.len() > 1);
    let engine = engine(&limits)?;
    let mut prefetcher = Prefetcher::new(engine, limits, Some(seen), failures, report, stop);
    let walking = Options::new();
    if is_watched {
        let total = Total::of_paths(paths.clone(), Kinds::Regular, walking.clone());
        prefetcher.set_total(total);
    }
    for path in paths {
        let mut add = |file| {
            prefetcher.add(Request {
                file,
                selection: None,
            })
        };
        if stop.asked()
            || visit(
                path,
                Kinds::Regular,
                walking.clone(),
                failures,
                stop,
                &mut add,
            )
            .is_err()
        {
            break;
        }
    }
    Ok(prefetcher.finish())
}

/// The budget of an argument.
pub fn allowed(budget: Option<&Bound<'_, PyAny>>) -> PyResult<Allowed> {
    match budget {
        None => Ok(Limits::default().budget),
        Some(text) if text.is_instance_of::<PyString>() => {
            let text: String = text.extract()?;
            text.parse().map_err(PyValueError::new_err)
        }
        Some(number) => Ok(Allowed::Bytes(bytes(number, "budget")?)),
    }
}

/// The rate of an argument, in bytes per second.
pub fn per_second(rate: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(rate) = rate.cast::<PyFloat>() {
        let rate = rate.value();
        let is_valid = (1.0..u64::MAX as f64).contains(&rate);
        let why =
            || PyValueError::new_err(format!("rate should be from 1 to 2**64 - 1, not {rate}"));
        return is_valid.then_some(rate as u64).ok_or_else(why);
    }
    if rate.is_instance_of::<PyString>() {
        let text: String = rate.extract()?;
        return text
            .parse()
            .map(|Size(rate)| rate)
            .map_err(PyValueError::new_err);
    }
    match bytes(rate, "rate")? {
        0 => Err(PyValueError::new_err("rate should be greater than 0")),
        rate => Ok(rate),
    }
}

/// A number of bytes.
fn bytes(number: &Bound<'_, PyAny>, what: &str) -> PyResult<u64> {
    if !number.is_instance_of::<PyInt>() {
        let name = number.get_type().name()?;
        let message = format!("{what} should be int, str or None, not {name}");
        return Err(PyTypeError::new_err(message));
    }
    number.extract().map_err(|_| {
        PyValueError::new_err(format!(
            "{what} should be from 0 to 2**64 - 1, not {number}"
        ))
    })
}
