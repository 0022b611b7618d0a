//! Positional reads: one range into a new `bytes`, one into a buffer, and several ranges.

use std::mem::MaybeUninit;

use futures_util::future::join_all;
use nowait::read::{Cached, try_cached};
use nowait::{Engine, File, Handle};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::memory::{Writable, filled};
use super::operation::{Finish, InEngine, Request};
use crate::error::call_error;

/// The number of bytes up to which cached data is copied with the GIL. To release it takes longer.
const WITH_GIL: usize = 64 << 10;

/// Reads a range into a new `bytes`.
pub struct ReadAt {
    pub handle: Handle,
    pub offset: u64,
    pub len: usize,
}

/// Reads a range into a buffer of the program.
pub struct ReadIntoAt {
    pub handle: Handle,
    pub offset: u64,
    pub buffer: Writable,
}

/// Reads ranges into a list of `bytes`.
pub struct ReadRanges {
    handle: Handle,
    ranges: Vec<Range>,
}

/// A range, with its bytes if they were cached.
struct Range {
    offset: u64,
    len: usize,
    cached: Option<Py<PyBytes>>,
}

impl Request for ReadAt {
    fn bytes(&self) -> usize {
        self.len
    }

    #[inline]
    fn try_now(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let read = cached_bytes(py, &self.handle, self.offset, self.len)?;
        Ok(read.map(|bytes| bytes.into_any().unbind()))
    }

    fn start(self: Box<Self>, py: Python<'_>) -> PyResult<InEngine> {
        let engine = Engine::process().map_err(|error| call_error(py, &error))?;
        Ok(Box::pin(async move {
            let read = read(&engine, &self.handle, self.offset, self.len).await;
            let finish: Finish = Box::new(move |py| {
                let bytes = read.map_err(|error| error.for_python(py))?;
                Ok(PyBytes::new(py, &bytes).into_any().unbind())
            });
            finish
        }))
    }
}

impl Request for ReadIntoAt {
    fn bytes(&self) -> usize {
        self.buffer.len()
    }

    fn try_now(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match cached(py, &self.handle, self.offset, self.buffer.memory())? {
            Some(n) => Ok(Some(n.into_pyobject(py)?.into_any().unbind())),
            None => Ok(None),
        }
    }

    fn start(mut self: Box<Self>, py: Python<'_>) -> PyResult<InEngine> {
        let engine = Engine::process().map_err(|error| call_error(py, &error))?;
        Ok(Box::pin(async move {
            // The engine must not write into memory that the program may free after a cancellation.
            let read = read(&engine, &self.handle, self.offset, self.buffer.len()).await;
            let finish: Finish = Box::new(move |py| {
                let bytes = read.map_err(|error| error.for_python(py))?;
                let n = self.buffer.fill(&bytes);
                Ok(n.into_pyobject(py)?.into_any().unbind())
            });
            finish
        }))
    }
}

impl ReadRanges {
    /// Ranges of (offset, number of bytes).
    pub fn new(handle: Handle, ranges: impl IntoIterator<Item = (u64, usize)>) -> ReadRanges {
        let ranges = ranges.into_iter().map(|(offset, len)| Range {
            offset,
            len,
            cached: None,
        });
        ReadRanges {
            handle,
            ranges: ranges.collect(),
        }
    }
}

impl Request for ReadRanges {
    fn bytes(&self) -> usize {
        let lens = self.ranges.iter().map(|range| range.len);
        lens.fold(0, usize::saturating_add)
    }

    fn try_now(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        for range in &mut self.ranges {
            let read = cached_bytes(py, &self.handle, range.offset, range.len)?;
            range.cached = read.map(Bound::unbind);
        }
        if self.ranges.iter().any(|range| range.cached.is_none()) {
            return Ok(None);
        }
        let all = self.ranges.iter().map(|range| &range.cached);
        Ok(Some(PyList::new(py, all)?.into_any().unbind()))
    }

    fn start(self: Box<Self>, py: Python<'_>) -> PyResult<InEngine> {
        let engine = Engine::process().map_err(|error| call_error(py, &error))?;
        Ok(Box::pin(async move {
            let reads = self.ranges.iter().map(async |range| match &range.cached {
                Some(_) => Ok(Vec::new()),
                None => read(&engine, &self.handle, range.offset, range.len).await,
            });
            let reads = join_all(reads).await;
            let finish: Finish = Box::new(move |py| {
                let list = PyList::empty(py);
                for (range, read) in self.ranges.iter().zip(reads) {
                    match &range.cached {
                        Some(bytes) => list.append(bytes)?,
                        None => {
                            let bytes = read.map_err(|error| error.for_python(py))?;
                            list.append(PyBytes::new(py, &bytes))?;
                        }
                    }
                }
                Ok(list.into_any().unbind())
            });
            finish
        }))
    }
}

/// The bytes of a range, if the page cache has all of them.
#[inline]
fn cached_bytes<'py>(
    py: Python<'py>,
    handle: &Handle,
    offset: u64,
    len: usize,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let len = limited(handle, offset, len);
    filled(py, len, |memory| cached(py, handle, offset, memory))
}

/// Reads a range if the page cache has all of it. Returns the number of bytes, which is less than
/// that of the memory at the end of the file alone.
#[inline]
fn cached(
    py: Python<'_>,
    handle: &Handle,
    offset: u64,
    memory: &mut [MaybeUninit<u8>],
) -> PyResult<Option<usize>> {
    let len = memory.len();
    let tried = if len <= WITH_GIL {
        try_cached(handle, memory, offset)
    } else {
        py.detach(|| try_cached(handle, memory, offset))
    };
    match tried.map_err(|error| call_error(py, &error))? {
        Some(Cached::All(n)) => Ok(Some(n)),
        _ => Ok(None),
    }
}

/// The failure of a read in the engine.
enum Failure {
    Memory,
    Read(nowait::Error),
}

impl Failure {
    fn for_python(self, py: Python<'_>) -> PyErr {
        match self {
            Failure::Memory => PyMemoryError::new_err(()),
            Failure::Read(error) => call_error(py, &error),
        }
    }
}

/// Reads a range into memory of its own.
async fn read(
    engine: &Engine,
    handle: &Handle,
    offset: u64,
    len: usize,
) -> Result<Vec<u8>, Failure> {
    let len = limited(handle, offset, len);
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(len).map_err(|_| Failure::Memory)?;
    let file = File::from_handle(handle, engine);
    let mut read = file.read_at(buffer, offset).await;
    read.result.map_err(Failure::Read)?;
    // The memory may be larger than what was asked for.
    read.buf.truncate(len);
    Ok(read.buf)
}

/// Reduces a large length to that of the rest of the file, before memory is allocated.
#[inline]
fn limited(handle: &Handle, offset: u64, len: usize) -> usize {
    if len <= WITH_GIL || !handle.is_regular() {
        return len;
    }
    match rustix::fs::fstat(handle) {
        // A file that reports no size, as those of /proc, is read up to what was asked for.
        Ok(stat) if stat.st_size > 0 => {
            let rest = stat.st_size.cast_unsigned().saturating_sub(offset);
            len.min(usize::try_from(rest).unwrap_or(usize::MAX))
        }
        _ => len,
    }
}
