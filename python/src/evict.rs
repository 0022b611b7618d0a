//! `evict` removes files from the page cache.

use std::collections::BTreeMap;
use std::convert::Infallible;

use nowait_page_cache::{
    Action, Kinds, MappingProcesses, SeenInodes, Stop, Totals, evict_all, visit,
};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::call;
use crate::failures::Failures;
use crate::hang;
use crate::paths::{Named, Paths};
use crate::unknown::Unknown;

/// The result of evict(). Sizes are in bytes.
#[pyclass(frozen, get_all, module = "nowait")]
pub struct EvictResult {
    /// The number of processed files. A file with several names counts once.
    files: u64,
    /// The memory of the files in the page cache before, in files of known residency.
    cached_bytes: u64,
    /// The memory that was evicted.
    evicted_bytes: u64,
    /// The memory that stayed.
    stayed_bytes: u64,
    /// The memory that stayed for each reason: "dirty", "writeback", "mapped", "memory" (tmpfs),
    /// "held" (used by the kernel, or read again) or "mixed" (any of these).
    stayed: BTreeMap<&'static str, u64>,
    /// Files of unknown residency.
    unknown: Vec<Py<Unknown>>,
    /// The number of files below directories that failed.
    failed: u64,
    /// The first 1000 of these failures, each an OSError.
    errors: Vec<Py<PyAny>>,
}

#[pymethods]
impl EvictResult {
    /// The traceback of an exception may refer to this object.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.errors.iter().try_for_each(|error| visit.call(error))
    }

    fn __repr__(&self) -> String {
        format!(
            "EvictResult(files={}, cached_bytes={}, evicted_bytes={}, stayed_bytes={}, failed={})",
            self.files, self.cached_bytes, self.evicted_bytes, self.stayed_bytes, self.failed
        )
    }
}

/// Removes files from the page cache, with posix_fadvise(2).
///
/// Pages that other programs have cached go, too. Dirty pages stay: os.fsync() writes them first.
/// So do pages that a process maps. The GIL is released. Ctrl-C raises KeyboardInterrupt within
/// 0.2 seconds.
///
/// Args:
///     paths: A path, an open descriptor, an open file, or an iterable of them, as in warm(). All regular files
///         below a directory are evicted.
///
/// Returns:
///     An EvictResult. Failures of files below directories are in its `errors`.
///
/// Raises:
///     OSError: A file in `paths` cannot be opened. It has errno and filename, and is of the
///         subclass that open() raises.
///     ValueError: A path has a null byte.
///
/// >>> import os, tempfile
/// >>> with tempfile.NamedTemporaryFile(dir=".") as file:
/// ...     _ = file.write(bytes(100_000))
/// ...     file.flush()
/// ...     os.fsync(file.fileno())
/// ...     evict(file.name).files
/// 1
#[pyfunction]
pub fn evict(py: Python<'_>, paths: &Bound<'_, PyAny>) -> PyResult<EvictResult> {
    let _guard = hang::guard();
    let arguments = Named::all(paths)?;
    let stop = Stop::default();
    let failures = Failures::new(&arguments, Some(&stop));
    let paths = Paths::of(&arguments);
    let its = stop.clone();
    let work = move |_: &mut dyn FnMut(_)| (evict_paths(&paths, &failures, &its), failures);
    let (totals, failures) = call::run(py, &stop, None, work)?;
    let (failed, errors) = failures.finish(py, &|i| arguments[i].object.clone_ref(py))?;
    let stayed = totals.by_reason.iter();
    Ok(EvictResult {
        files: totals.files,
        cached_bytes: totals.cached,
        evicted_bytes: totals.evicted,
        stayed_bytes: totals.stayed,
        stayed: stayed.map(|(kind, &bytes)| (kind.word(), bytes)).collect(),
        unknown: Unknown::all(py, &totals.unknown)?,
        failed,
        errors,
    })
}

fn evict_paths(Paths { paths, .. }: &Paths, failures: &Failures, stop: &Stop) -> Totals {
    let walking = nowait::walk::Options::new();
    let result = evict_all::<Infallible>(
        |each| {
            let mut paths = paths.iter().take_while(|_| !stop.asked());
            paths.try_for_each(|path| {
                visit(path, Kinds::Regular, walking.clone(), failures, stop, each)
            })
        },
        Action::Evict { flush: false },
        SeenInodes::new(paths.len() > 1),
        failures,
        &mut MappingProcesses::default(),
        |_, _| Ok(()),
    );
    match result {
        Ok(totals) => totals,
        Err(never) => match never {},
    }
}
