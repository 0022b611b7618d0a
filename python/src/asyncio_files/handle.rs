//! An open file with positional reads and writes for asyncio.

use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nowait::op::Statx;
use nowait::{Engine, File, StatxMask};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::awaitable::awaitable;
use super::budget;
use super::failure::Failure;
use super::in_engine::EngineRequest;
use super::memory::{Exported, LARGEST, Source};
use super::operation::Arguments;
use super::read::{self, ReadAt, ReadIntoAt, ReadRanges};
use super::stat::stat_request;
use crate::error::call_error;
use crate::hang;
use crate::paths;

/// An open file. All methods but `try_read_at`, `fileno`, `release` and `take_descriptor` return
/// awaitables.
#[pyclass(subclass, frozen, weakref, module = "nowait.asyncio_files")]
pub struct Handle {
    open: Mutex<Option<nowait::Handle>>,
    /// False if the descriptor stays the program's.
    closes: bool,
}

impl From<nowait::Handle> for Handle {
    fn from(open: nowait::Handle) -> Handle {
        Handle::of(open, true)
    }
}

impl Handle {
    fn of(open: nowait::Handle, closes: bool) -> Handle {
        Handle {
            open: Mutex::new(Some(open)),
            closes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<nowait::Handle>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// ValueError after `release`.
    #[inline]
    pub(super) fn open(&self) -> PyResult<nowait::Handle> {
        let open = self.lock().clone();
        open.ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))
    }
}

#[pymethods]
impl Handle {
    /// Takes over the file of another handle, which is closed then.
    #[new]
    fn new(other: &Bound<'_, Handle>) -> PyResult<Handle> {
        let open = other.get().lock().take();
        let open = open.ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))?;
        Ok(Handle::of(open, other.get().closes))
    }

    /// Takes over a descriptor, which `release` closes if `closes` is true. Otherwise the program must not
    /// close it while an operation of the engine is under way.
    #[staticmethod]
    #[pyo3(signature = (descriptor, closes=true))]
    fn of_descriptor(py: Python<'_>, descriptor: i32, closes: bool) -> PyResult<Handle> {
        let _guard = hang::guard();
        let object = descriptor.into_pyobject(py)?.into_any();
        let taken = paths::take(&object, descriptor)?;
        match py.detach(|| nowait::Handle::try_new(taken, None)) {
            Ok(open) => Ok(Handle::of(open, closes)),
            Err((error, descriptor)) => {
                if !closes {
                    let _ = descriptor.into_raw_fd();
                }
                Err(call_error(py, &error))
            }
        }
    }

    /// Read `n` bytes at `offset`.
    ///
    /// Cached data is read when the awaitable is awaited, without a turn of the event loop. The file's
    /// position does not move.
    ///
    /// Args:
    ///     offset: The offset in bytes.
    ///     n: The number of bytes.
    ///
    /// Returns:
    ///     An awaitable of `bytes`. It is shorter than `n` only at the end of the file.
    ///
    /// Raises:
    ///     OSError: The read failed. It has errno.
    ///     ValueError: The file is closed, or an argument is negative.
    #[inline]
    fn read_at(&self, py: Python<'_>, offset: i64, n: isize) -> PyResult<Py<PyAny>> {
        let handle = self.open()?;
        let (offset, len) = range(offset, n)?;
        let read = ReadAt {
            handle,
            offset,
            len,
        };
        awaitable(py, read)
    }

    /// Read at most `n` bytes at `offset`, if they are cached and the task need not give way. Otherwise None.
    fn try_read_at(&self, py: Python<'_>, offset: i64, n: isize) -> PyResult<Option<Py<PyAny>>> {
        let handle = self.open()?;
        let (offset, len) = range(offset, n)?;
        match budget::spend(py, len)? {
            true => read::cached_bytes(py, &handle, offset, len),
            false => Ok(None),
        }
    }

    /// Read into a buffer at `offset`, as many bytes as it has.
    ///
    /// Data that is not cached is read into memory of the library and copied, so that a read that is
    /// cancelled does not write into the buffer later. A buffer of more than 256 KiB is filled by a thread
    /// of the library. It cannot be resized before the awaitable has ended.
    ///
    /// Args:
    ///     offset: The offset in bytes.
    ///     buffer: A writable contiguous buffer, such as a bytearray.
    ///
    /// Returns:
    ///     An awaitable of the number of bytes. It is less than the length of the buffer only at the end
    ///     of the file.
    ///
    /// Raises:
    ///     OSError: The read failed. It has errno.
    ///     ValueError: The file is closed, the offset is negative, or the buffer is read-only.
    fn readinto_at(
        &self,
        py: Python<'_>,
        offset: i64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let _guard = hang::guard();
        let handle = self.open()?;
        let offset = not_negative(offset)?;
        let buffer = Exported::writable(buffer)?;
        awaitable(
            py,
            ReadIntoAt {
                handle,
                offset,
                buffer,
            },
        )
    }

    /// Read several ranges, all at the same time.
    ///
    /// Args:
    ///     ranges: An iterable of pairs (offset, number of bytes).
    ///
    /// Returns:
    ///     An awaitable of a list of `bytes`, in the order of the ranges.
    ///
    /// Raises:
    ///     OSError: A read failed. It has errno.
    ///     ValueError: The file is closed, or a number is negative.
    fn read_ranges(&self, py: Python<'_>, ranges: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let _guard = hang::guard();
        let handle = self.open()?;
        let ranges = paths::items(ranges.try_iter()?).map(|item| {
            let (offset, n) = item?.extract()?;
            range(offset, n)
        });
        let ranges = ranges.collect::<PyResult<Vec<_>>>()?;
        awaitable(py, ReadRanges::new(handle, ranges))
    }

    /// Write bytes at `offset`.
    ///
    /// More than 1 MiB are copied by a thread of the library, if they are no `bytes`: they must not
    /// change before the awaitable has ended.
    ///
    /// Returns:
    ///     An awaitable of the number of bytes, which is all of them.
    ///
    /// Raises:
    ///     OSError: The write failed. It has errno.
    ///     ValueError: The file is closed, or the offset is negative.
    fn write_at(
        &self,
        py: Python<'_>,
        offset: i64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let _guard = hang::guard();
        let handle = self.open()?;
        let offset = not_negative(offset)?;
        let (source, lent) = Source::of(data)?;
        let kept = lent.map_or(Arguments::Nothing, Arguments::Buffer);
        let write = async move |engine: Engine| {
            let file = File::from_handle(&handle, &engine);
            let copied = match source {
                Source::Bytes(bytes) => return Ok(file.write_all_at(bytes, offset).await.result?),
                Source::Copied(bytes) => bytes,
                Source::Large(borrower) => engine.spawn_blocking(move || borrower.copy()).await??,
            };
            let written = file.write_all_at(copied, offset).await;
            if written.buf.len() > LARGEST {
                // To free much memory takes long.
                drop(engine.spawn_blocking(move || drop(written.buf)));
            }
            Ok(written.result?)
        };
        let request = EngineRequest::new(kept, write, |py, _, written: Result<usize, Failure>| {
            let n = written.map_err(|error| error.for_python(py))?;
            n.into_py_any(py)
        });
        awaitable(py, request)
    }

    /// Write the file's data and metadata to the disk: fsync(2).
    fn fsync(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let handle = self.open()?;
        let sync = async move |engine| File::from_handle(&handle, &engine).sync_all().await;
        let finish = |py: Python<'_>, _, synced: nowait::Result<()>| {
            synced.map_err(|error| call_error(py, &error))?;
            Ok(py.None())
        };
        awaitable(py, EngineRequest::new(Arguments::Nothing, sync, finish))
    }

    /// The file's metadata: an awaitable of os.stat_result.
    fn stat(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let handle = self.open()?;
        let statx = Statx::of(&handle, StatxMask::BASIC_STATS);
        awaitable(py, stat_request(statx, Arguments::Nothing))
    }

    /// True for a regular file.
    #[getter]
    fn is_regular(&self) -> PyResult<bool> {
        Ok(self.open()?.is_regular())
    }

    /// The descriptor of the file.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.open()?.as_fd().as_raw_fd())
    }

    /// True if `release` does not wait.
    #[getter]
    fn closes_at_once(&self) -> PyResult<bool> {
        Ok(self.open()?.closes_at_once())
    }

    /// Closes the descriptor. Operations that have begun continue with it.
    ///
    /// # Errors
    /// OSError of close(2), which some filesystems return if written data was lost. The descriptor is
    /// closed nevertheless.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let _guard = hang::guard();
        let Some(open) = self.lock().take() else {
            return Ok(());
        };
        if !self.closes {
            leave_open(open);
            return Ok(());
        }
        let closed = match open.closes_at_once() {
            true => open.close(),
            false => py.detach(|| open.close()),
        };
        closed.map_err(|error| call_error(py, &error))
    }

    /// Takes the descriptor, which the caller closes: as `release` without close(2). It is a duplicate
    /// if operations have begun, which continue with their own.
    ///
    /// # Errors
    /// OSError of dup(2). ValueError after `release`.
    fn take_descriptor(&self) -> PyResult<i32> {
        let mut open = self.lock();
        let taken = open.take();
        let taken = taken.ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))?;
        let descriptor = match taken.into_fd() {
            Ok(descriptor) => descriptor,
            Err(used) => match used.as_fd().try_clone_to_owned() {
                Ok(descriptor) => descriptor,
                Err(error) => {
                    *open = Some(used);
                    return Err(error.into());
                }
            },
        };
        Ok(descriptor.into_raw_fd())
    }

    /// True after `release`.
    #[getter]
    fn closed(&self) -> bool {
        self.lock().is_none()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.closes
            && let Some(open) = self.lock().take()
        {
            leave_open(open);
        }
    }
}

/// Drops a handle without close(2).
fn leave_open(open: nowait::Handle) {
    match open.into_fd() {
        Ok(descriptor) => drop(descriptor.into_raw_fd()),
        // An operation is under way, whose clone would close it.
        Err(used) => std::mem::forget(used),
    }
}

/// An offset and a length as the library takes them.
#[inline]
fn range(offset: i64, n: isize) -> PyResult<(u64, usize)> {
    let offset = not_negative(offset)?;
    let len = usize::try_from(n).map_err(|_| negative("n"))?;
    Ok((offset, len))
}

fn not_negative(offset: i64) -> PyResult<u64> {
    u64::try_from(offset).map_err(|_| negative("offset"))
}

fn negative(what: &str) -> PyErr {
    PyValueError::new_err(format!("{what} must not be negative"))
}
