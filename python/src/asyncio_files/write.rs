//! A write at the position of a file. The write goes on if the task or the event loop that has begun it
//! ends.
//!
//! ```text
//!  Write(file, data, begin) ─► engine ─► outcome(): the bytes that it has written, and its error
//!                                           ▲
//!  a task of any event loop ─ ended() ──────┤
//!  a thread without a loop ── wait() ───────┘
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use nowait::Engine;
use nowait::op::Write as WriteOp;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::io::Errno;

use super::awaitable::awaitable;
use super::handle::Handle;
use super::in_engine::EngineRequest;
use super::memory::SharedBytes;
use super::operation::Arguments;
use crate::error::{call_error, os_error};
use crate::hang;
use crate::parked::Unpark;

/// A write that has begun, at the position of the descriptor, which it moves.
#[pyclass(frozen, module = "nowait.asyncio_files")]
pub struct Write {
    written: Shared<BoxFuture<'static, Written>>,
    len: usize,
    process: u32,
}

/// The result of a write.
#[derive(Clone)]
struct Written {
    /// The number of bytes that were written, also if the rest has failed.
    bytes: usize,
    error: Option<Arc<nowait::Error>>,
}

#[pymethods]
impl Write {
    /// Begins to write the bytes after the first `begin`.
    #[new]
    fn new(
        py: Python<'_>,
        file: &Handle,
        data: &Bound<'_, PyBytes>,
        begin: usize,
    ) -> PyResult<Write> {
        let _guard = hang::guard();
        let handle = file.open()?;
        let engine = Engine::process().map_err(|error| call_error(py, &error))?;
        let source = SharedBytes::from(data, begin);
        let len = data.as_bytes().len().saturating_sub(begin);
        let write = WriteOp::stream(&handle, Box::new(source)).all();
        let write = async move {
            let done = engine.run(write).await;
            let error = done.result.err().map(Arc::new);
            Written {
                bytes: done.op.written(),
                error,
            }
        };
        let mut written = write.boxed().shared();
        // The first poll submits it.
        let _ = Pin::new(&mut written).poll(&mut Context::from_waker(Waker::noop()));
        Ok(Write {
            written,
            len,
            process: std::process::id(),
        })
    }

    /// An awaitable of None, when the write has ended. The event loop may be another one than that of the
    /// task that has begun the write.
    fn ended(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let written = self.its_own().then(|| self.written.clone());
        let ended = async move |_| {
            if let Some(written) = written {
                written.await;
            }
        };
        let finish = |py: Python<'_>, _, ()| Ok(py.None());
        awaitable(py, EngineRequest::new(Arguments::Nothing, ended, finish))
    }

    /// Waits in this thread until the write has ended.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let _guard = hang::guard();
        let mut written = self.written.clone();
        let waker = Waker::from(Unpark::this_thread());
        let mut context = Context::from_waker(&waker);
        while self.its_own() && Pin::new(&mut written).poll(&mut context).is_pending() {
            py.detach(Unpark::wait);
            py.check_signals()?;
        }
        Ok(())
    }

    /// The number of bytes that were written, and the OSError or None, of a write that has ended.
    fn outcome(&self, py: Python<'_>) -> PyResult<(usize, Option<PyErr>)> {
        if !self.its_own() {
            return Ok((self.len, None));
        }
        let written = self.written.peek();
        let written = written.ok_or_else(|| PyRuntimeError::new_err("the write has not ended"))?;
        let error = match &written.error {
            Some(error) => Some(call_error(py, error)),
            // A write(2) that returns 0 would return it again.
            None if written.bytes < self.len => {
                Some(os_error(py, Errno::IO, None, py.None().bind(py)))
            }
            None => None,
        };
        Ok((written.bytes, error))
    }
}

impl Write {
    /// False in a forked child: the parent writes.
    fn its_own(&self) -> bool {
        self.process == std::process::id()
    }
}
