//! Positional reads: one range into a new `bytes`, one into a buffer, and several ranges.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, Stream};
use nowait::read::{COPY_LIMIT, Cached, try_cached};
use nowait::{Engine, File, Handle};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::failure::{Failure, reserved};
use super::memory::{Exported, LARGEST, NewBytes};
use super::operation::{Arguments, Begun, Finish, InEngine, References, Request};
use crate::error::call_error;

/// The number of bytes up to which cached data is copied with the GIL. To release it takes longer.
const WITH_GIL: usize = 64 << 10;

/// The time after which several ranges give way to other tasks.
const TIME: Duration = Duration::from_micros(500);
/// One range in so many looks at the clock.
const TIMED: usize = 8;
/// The number of ranges that are in the engine at the same time, at most.
const IN_ENGINE: usize = 128;

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
    pub buffer: Exported,
}

/// Reads ranges into a list of `bytes`.
pub struct ReadRanges {
    handle: Handle,
    /// The offset and the length of each range.
    ranges: Vec<(u64, usize)>,
    /// The ranges that were tried in the page cache, in the order of `ranges`.
    tried: Vec<Tried>,
}

/// The memory of a range, which is filled if all of it was cached.
struct Tried {
    bytes: NewBytes,
    is_cached: bool,
}

impl Request for ReadAt {
    fn bytes(&self) -> usize {
        self.len.min(LARGEST)
    }

    #[inline]
    fn begin(self: Box<Self>, py: Python<'_>) -> PyResult<Begun> {
        let tried = Tried::of(py, &self.handle, self.offset, self.len)?;
        if tried.is_cached {
            return Ok(Begun::Done(tried.bytes.filled(py).into_any().unbind()));
        }
        let (file, offset) = (file(py, &self.handle)?, self.offset);
        let read = async move {
            let read = read(&file, tried.bytes, offset).await;
            let finish: Finish = Box::new(move |py, _| {
                let bytes = read.map_err(|error| call_error(py, &error))?;
                Ok(bytes.filled(py).into_any().unbind())
            });
            finish
        };
        Ok(Begun::InEngine(Box::pin(read), Arguments::Nothing))
    }
}

/// Reads a range into a new `bytes`. `None` if the page cache does not have all of it.
pub fn cached_bytes(
    py: Python<'_>,
    handle: &Handle,
    offset: u64,
    len: usize,
) -> PyResult<Option<Py<PyAny>>> {
    let tried = Tried::of(py, handle, offset, len)?;
    let bytes = || tried.bytes.filled(py).into_any().unbind();
    Ok(tried.is_cached.then(bytes))
}

/// Reads a range in the engine.
async fn read(file: &File, bytes: NewBytes, offset: u64) -> nowait::Result<NewBytes> {
    let read = file.read_at(bytes, offset).await;
    read.result?;
    Ok(read.buf)
}

impl Request for ReadIntoAt {
    fn bytes(&self) -> usize {
        self.buffer.len().min(LARGEST)
    }

    fn references<'py>(&self, py: Python<'py>) -> References<'_, 'py> {
        [self.buffer.object(py), None]
    }

    fn begin(mut self: Box<Self>, py: Python<'_>) -> PyResult<Begun> {
        let (offset, len) = (self.offset, self.buffer.len());
        if let Some(n) = cached(py, &self.handle, offset, self.buffer.memory())? {
            return Ok(Begun::Done(n.into_py_any(py)?));
        }
        let file = file(py, &self.handle)?;
        // Nothing writes into memory of the program after a cancellation.
        let read: InEngine = if len > COPY_LIMIT {
            let borrower = self.buffer.lend();
            let engine = file.engine().clone();
            Box::pin(async move {
                let fill = engine.spawn_blocking(move || borrower.fill(&file, offset));
                let filled = fill.await.map_err(Failure::from).and_then(|filled| filled);
                let finish: Finish = Box::new(move |py, _| {
                    let n = filled.map_err(|error| error.for_python(py))?;
                    n.into_py_any(py)
                });
                finish
            })
        } else {
            Box::pin(async move {
                let read = read_own(&file, offset, len).await;
                let finish: Finish = Box::new(move |py, mut kept| {
                    let bytes = read.map_err(|error| error.for_python(py))?;
                    match &mut kept {
                        Arguments::Buffer(buffer) => buffer.fill(&bytes).into_py_any(py),
                        _ => 0.into_py_any(py),
                    }
                });
                finish
            })
        };
        Ok(Begun::InEngine(read, Arguments::Buffer(self.buffer)))
    }
}

/// Reads a range into memory of its own.
async fn read_own(file: &File, offset: u64, len: usize) -> Result<Vec<u8>, Failure> {
    let mut read = file.read_at(reserved(len)?, offset).await;
    read.result?;
    // The memory may be larger than what was asked for.
    read.buf.truncate(len);
    Ok(read.buf)
}

impl ReadRanges {
    /// Ranges of (offset, number of bytes).
    pub fn new(handle: Handle, ranges: Vec<(u64, usize)>) -> ReadRanges {
        ReadRanges {
            handle,
            tried: Vec::with_capacity(ranges.len()),
            ranges,
        }
    }
}

impl Request for ReadRanges {
    fn bytes(&self) -> usize {
        let lens = self.ranges[self.tried.len()..].iter().map(|(_, len)| len);
        lens.fold(0, |sum: usize, len| sum.saturating_add(*len))
            .min(LARGEST)
    }

    fn begin(mut self: Box<Self>, py: Python<'_>) -> PyResult<Begun> {
        let begun = Instant::now();
        while let Some((offset, len)) = self.ranges.get(self.tried.len()) {
            let is_timed = *len > WITH_GIL || self.tried.len() % TIMED == TIMED - 1;
            if is_timed && begun.elapsed() > TIME {
                return Ok(Begun::Part(self));
            }
            self.tried.push(Tried::of(py, &self.handle, *offset, *len)?);
        }
        if self.tried.iter().all(|tried| tried.is_cached) {
            let bytes = self.tried.into_iter().map(|tried| tried.bytes);
            return list(py, bytes.collect()).map(Begun::Done);
        }
        let file = file(py, &self.handle)?;
        let read = async move {
            let read = read_rest(&file, self.ranges, self.tried).await;
            let finish: Finish = Box::new(move |py, _| {
                let bytes = read.map_err(|error| call_error(py, &error))?;
                list(py, bytes)
            });
            finish
        };
        Ok(Begun::InEngine(Box::pin(read), Arguments::Nothing))
    }
}

fn list(py: Python<'_>, all: Vec<NewBytes>) -> PyResult<Py<PyAny>> {
    let all = all.into_iter().map(|bytes| bytes.filled(py));
    Ok(PyList::new(py, all)?.into_any().unbind())
}

/// Reads the ranges that were not cached. Gives way to other tasks from time to time, because many
/// ranges may be cached meanwhile.
async fn read_rest(
    file: &File,
    ranges: Vec<(u64, usize)>,
    tried: Vec<Tried>,
) -> nowait::Result<Vec<NewBytes>> {
    let mut all: Vec<Option<NewBytes>> = Vec::with_capacity(tried.len());
    let mut rest = Vec::new();
    for (i, tried) in tried.into_iter().enumerate() {
        let (bytes, rest_of) = match tried.is_cached {
            true => (Some(tried.bytes), None),
            false => (None, Some((i, ranges[i].0, tried.bytes))),
        };
        all.push(bytes);
        rest.extend(rest_of);
    }
    let mut rest = rest.into_iter();
    let mut reads = FuturesUnordered::new();
    let mut poll = |context: &mut Context<'_>| -> Poll<nowait::Result<()>> {
        let begun = Instant::now();
        loop {
            if reads.len() < IN_ENGINE
                && let Some((i, offset, bytes)) = rest.next()
            {
                reads.push(async move { (i, read(file, bytes, offset).await) });
            }
            match Pin::new(&mut reads).poll_next(context) {
                Poll::Ready(Some((i, bytes))) => all[i] = Some(bytes?),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending if reads.len() == IN_ENGINE || rest.len() == 0 => {
                    return Poll::Pending;
                }
                Poll::Pending => {}
            }
            if begun.elapsed() > TIME {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    };
    std::future::poll_fn(&mut poll).await?;
    Ok(all.into_iter().flatten().collect())
}

impl Tried {
    /// Reads a range into new memory if the page cache has all of it.
    #[inline]
    fn of(py: Python<'_>, handle: &Handle, offset: u64, len: usize) -> PyResult<Tried> {
        let len = limited(handle, offset, len);
        let mut bytes = NewBytes::new(py, len)?;
        let is_cached = bytes.fill(|memory| cached(py, handle, offset, memory))?;
        Ok(Tried { bytes, is_cached })
    }
}

/// The file, with the engine of the process.
fn file(py: Python<'_>, handle: &Handle) -> PyResult<File> {
    let engine = Engine::process().map_err(|error| call_error(py, &error))?;
    Ok(File::from_handle(handle, &engine))
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

/// Reduces a large length to that of the rest of the file, before memory is allocated.
#[inline]
fn limited(handle: &Handle, offset: u64, len: usize) -> usize {
    // fstat(2) of a served file may wait for the server.
    if len <= WITH_GIL || !handle.is_regular() || handle.is_served() {
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
