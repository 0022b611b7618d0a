//! `read_ahead` reads files into the page cache while the program loads them.
//!
//! ```text
//!  __enter__ ─► thread: examine all files ─► Prefetcher, in order ─► ranges that were read
//!  the program reads or maps the files                                     │
//!  __exit__ ──► stop, join ──► evict_after: these ranges, as far as they were missing
//! ```

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nowait_page_cache::{
    FileRef, Given, Kinds, Limits, Missing, Prefetcher, Progress, Stop, Summary, engine, given,
    visit,
};
use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::call;
use crate::error::{forked, library_error, open_error};
use crate::failures::Failures;
use crate::paths::{Named, items, text};
use crate::safetensors::{self, Chosen, merged};
use crate::warm::allowed;

/// Reads files into the page cache while the program loads them, in a context.
///
/// `with read_ahead(paths) as reading:` starts a thread that reads the missing parts of the files in
/// the order of the paths, each file from its beginning. The program loads the files meanwhile, by
/// read(2) or by a mapping, as with safetensors, torch.load or GGUF. Data that is cached is not read
/// again. The end of the context ends the thread. The bytes that are read are limited by the memory
/// of the machine and of the cgroup, as in warm().
///
/// Args:
///     paths: A path, an open descriptor, or an iterable of them, as in warm().
///     budget: The maximum number of bytes to read, as in warm().
///     evict_after: At the end of the context, evict the pages that this object has read. Pages that
///         were cached before stay.
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
    arguments: Vec<Named>,
    limits: Limits,
    evict_after: bool,
    process: u32,
    shared: Arc<Shared>,
    thread: Mutex<Started>,
}

/// The thread of a context.
enum Started {
    Not,
    Running(JoinHandle<()>),
    Ended,
}

/// The state that the thread sees.
struct Shared {
    chosen: Vec<Chosen>,
    failures: Failures,
    stop: Stop,
    reading: Mutex<Reading>,
    ended: Condvar,
}

/// The work so far.
#[derive(Default)]
struct Reading {
    /// The examined files, each with the ranges that were read.
    files: Vec<(Arc<Missing>, Vec<Range<u64>>)>,
    /// The number of each file in `files`.
    numbers: HashMap<PathBuf, usize>,
    progress: Option<Progress>,
    /// The end of the thread, with its result.
    summary: Option<nowait::Result<Summary>>,
}

/// The work of a read_ahead. Sizes are in bytes.
#[pyclass(frozen, get_all, module = "nowait")]
pub struct ReadAheadReport {
    /// Bytes that were read.
    read_bytes: u64,
    /// Bytes that were in the page cache before.
    was_resident_bytes: u64,
    /// Bytes that were read and are not in the page cache any more. With `evict_after`: before the
    /// eviction.
    wasted_bytes: u64,
    /// The bytes that were read per second.
    bytes_per_s: u64,
    /// Missing bytes that were not read because of the budget.
    not_read_bytes: u64,
    /// The reason why they were not read; None without such a limit.
    not_read_reason: Option<String>,
    /// The number of files that failed.
    failed: u64,
    /// The first 1000 of these failures, each an OSError.
    errors: Vec<Py<PyAny>>,
}

#[pymethods]
impl ReadAheadReport {
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
        this.check_process()?;
        if !this.begin() {
            return Err(PyRuntimeError::new_err(
                "a read_ahead can be used only once",
            ));
        }
        let shared = this.shared.clone();
        let its = shared.clone();
        call::run(py, &shared.stop, None, move |_| its.look())?;
        shared.failures.finish(py, &this.arguments)?;
        let limits = this.limits.clone();
        let thread = call::start(move || {
            let summary = shared.read(limits);
            lock(&shared.reading).summary = Some(summary);
            shared.ended.notify_all();
        })?;
        this.set(Started::Running(thread));
        Ok(this)
    }

    /// Ends the thread. An exception of the context is not changed.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        // A forked child has no thread, and evicts nothing that its parent reads.
        if std::process::id() != self.process {
            return Ok(());
        }
        self.shared.stop.request();
        let shared = self.shared.clone();
        let has_ended = py.detach(|| {
            let reading = lock(&shared.reading);
            let not_ended = |reading: &mut Reading| reading.summary.is_none();
            let waited = shared
                .ended
                .wait_timeout_while(reading, call::PATIENCE, not_ended);
            !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
        });
        // A thread that waits for a device ends when it answers.
        if has_ended && let Started::Running(thread) = self.set(Started::Ended) {
            // A panic is reported on standard error. Data that is not read ahead is no failure.
            let _ = py.detach(|| thread.join());
        }
        if self.evict_after {
            let shared = self.shared.clone();
            let stop = Stop::default();
            let its = stop.clone();
            call::run(py, &stop, None, move |_| shared.evict(&its))?;
        }
        Ok(())
    }

    /// The work so far, as a ReadAheadReport.
    fn report(&self, py: Python<'_>) -> PyResult<ReadAheadReport> {
        self.check_process()?;
        // Bytes that are read while the pages are counted are not missing among them.
        let read_before = lock(&self.shared.reading).read_bytes();
        let shared = self.shared.clone();
        let stop = Stop::default();
        let its = stop.clone();
        let count = call::run(py, &stop, None, move |_| shared.count(&its));
        let (was_resident_bytes, cached) = count?;
        let (failed, errors) = self.shared.failures.errors(py, &self.arguments)?;
        let reading = lock(&self.shared.reading);
        let mut report = ReadAheadReport {
            read_bytes: reading.read_bytes(),
            was_resident_bytes,
            wasted_bytes: 0,
            bytes_per_s: reading.progress.map_or(0, |progress| progress.bytes_per_s),
            not_read_bytes: 0,
            not_read_reason: None,
            failed,
            errors,
        };
        match &reading.summary {
            None => {}
            Some(Err(error)) => return Err(library_error(py, error, py.None().bind(py))),
            Some(Ok(summary)) => {
                report.bytes_per_s = summary.rate();
                report.not_read_bytes = summary.not_read_bytes;
                report.not_read_reason = summary.not_read_reason.clone();
            }
        }
        report.wasted_bytes = read_before.saturating_sub(cached);
        Ok(report)
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
            limits: Limits {
                budget: allowed(budget)?,
                in_order: true,
                ..Limits::default()
            },
            evict_after,
            process: std::process::id(),
            shared: Arc::new(Shared {
                chosen,
                failures: Failures::new(&arguments, &stop),
                stop,
                reading: Mutex::default(),
                ended: Condvar::new(),
            }),
            arguments,
            thread: Mutex::new(Started::Not),
        })
    }

    /// Returns true for the first context. No lock is held while this thread detaches.
    fn begin(&self) -> bool {
        let mut thread = lock(&self.thread);
        let is_first = matches!(*thread, Started::Not);
        if is_first {
            *thread = Started::Ended;
        }
        is_first
    }

    fn set(&self, started: Started) -> Started {
        std::mem::replace(&mut *lock(&self.thread), started)
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
        self.shared.stop.request();
    }
}

impl Shared {
    /// Looks at each path, and reports those that cannot be read.
    fn look(&self) {
        for (path, _) in self.chosen.iter().take_while(|_| !self.stop.asked()) {
            let _: Option<Given> = given(path, Kinds::Regular, &self.failures);
        }
    }

    /// Reads the files in order.
    fn read(&self, limits: Limits) -> nowait::Result<Summary> {
        let engine = engine(&limits)?;
        let mut progress = |progress: Progress| lock(&self.reading).progress = Some(progress);
        let mut on_read =
            |file: &FileRef, range: Range<u64>| lock(&self.reading).add(&file.path, range);
        let (failures, stop) = (&self.failures, &self.stop);
        let mut prefetcher = Prefetcher::new(engine, limits, None, failures, &mut progress, stop);
        prefetcher.on_read(&mut on_read);
        for (path, ranges) in &self.chosen {
            let mut each = |file: FileRef| {
                let examined = Missing::of(file.clone(), ranges.as_deref());
                let missing = match examined {
                    Ok(missing) => missing,
                    Err(why) => {
                        file.failed(failures, why);
                        return Ok(());
                    }
                };
                let request = missing.request();
                lock(&self.reading).examined(missing);
                request.map_or(Ok(()), |request| prefetcher.add(request))
            };
            let walking = nowait::walk::Options::new();
            if stop.asked()
                || visit(path, Kinds::Regular, walking, failures, stop, &mut each).is_err()
            {
                break;
            }
        }
        Ok(prefetcher.finish())
    }

    /// The examined files, each with the ranges that were read, in order. The lock is not held
    /// while a caller opens the files.
    fn files(&self) -> Vec<(Arc<Missing>, Vec<Range<u64>>)> {
        let files = lock(&self.reading).files.clone();
        let files = files.into_iter();
        files
            .map(|(missing, read)| (missing, merged(read)))
            .collect()
    }

    /// The bytes that were cached before, and those that were read and are cached now.
    fn count(&self, stop: &Stop) -> (u64, u64) {
        let files = self.files().into_iter().take_while(|_| !stop.asked());
        files.fold((0, 0), |(before, now), (missing, read)| {
            (
                before + missing.cached_bytes(),
                now + missing.cached_now(&read),
            )
        })
    }

    fn evict(&self, stop: &Stop) {
        for (missing, read) in self.files().into_iter().take_while(|_| !stop.asked()) {
            missing.evict(&read);
        }
    }
}

impl Reading {
    /// The number of bytes that were read so far.
    fn read_bytes(&self) -> u64 {
        match &self.summary {
            Some(Ok(summary)) => summary.read_bytes,
            _ => self.progress.map_or(0, |progress| progress.read_bytes),
        }
    }

    /// Adds a file.
    fn examined(&mut self, missing: Missing) {
        let path = missing.file.path.clone();
        self.numbers.insert(path, self.files.len());
        self.files.push((Arc::new(missing), Vec::new()));
    }

    /// Adds a range that was read. Most extend the last one of their file.
    fn add(&mut self, path: &Path, range: Range<u64>) {
        let Some(&number) = self.numbers.get(path) else {
            return;
        };
        let (_, read) = &mut self.files[number];
        match read.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => read.push(range),
        }
    }
}

/// The state is consistent after each change.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
