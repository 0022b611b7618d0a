//! The steps of an awaitable: a request, a pause for the budget, a wait for the engine, a result.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use super::budget;
use super::event_loop::{self, Registered};

/// Converts the result of the engine for Python, in the loop's thread.
pub type Finish = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// The part of a request that the engine does.
pub type InEngine = Pin<Box<dyn Future<Output = Finish> + Send>>;

/// A request that has not begun.
pub trait Request: Send {
    /// The number of bytes that count in the budget of the loop.
    fn bytes(&self) -> usize {
        0
    }

    /// Does the request in the calling thread if that does not wait for a device.
    fn try_now(&mut self, _py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        Ok(None)
    }

    /// The request for the engine.
    fn start(self: Box<Self>, py: Python<'_>) -> PyResult<InEngine>;
}

/// The state of an awaitable.
pub enum Operation {
    New(Box<dyn Request>),
    /// It has yielded once, because the budget of the loop was spent.
    Paused(Box<dyn Request>),
    Waiting(Waiting),
    /// A step is being done.
    Running,
    Done,
}

/// A request that the engine does.
pub struct Waiting {
    future: InEngine,
    /// The registration in the loop, after the first wait.
    registered: Option<Registered>,
}

/// The result of a step.
pub enum Step {
    Return(Py<PyAny>),
    Yield(Py<PyAny>),
}

impl Operation {
    /// Does one step. Returns the next state with the result.
    #[inline]
    pub fn step(self, py: Python<'_>) -> (Operation, PyResult<Step>) {
        match self {
            Operation::New(request) => match budget::spend(py, request.bytes()) {
                Ok(true) => begin(py, request),
                // Another library's loop takes no pause. A budget may be left over from asyncio's.
                Ok(false) => match event_loop::running(py) {
                    Ok(_) => {
                        budget::waits();
                        (Operation::Paused(request), Ok(Step::Yield(py.None())))
                    }
                    Err(error) => (Operation::Done, Err(error)),
                },
                Err(error) => (Operation::Done, Err(error)),
            },
            // Other tasks had their turn.
            Operation::Paused(request) => match budget::after_pause(py, request.bytes()) {
                Ok(()) => begin(py, request),
                Err(error) => (Operation::Done, Err(error)),
            },
            Operation::Waiting(waiting) => waiting.step(py),
            Operation::Running => {
                let error = PyValueError::new_err("awaitable is already executing");
                (Operation::Running, Err(error))
            }
            Operation::Done => {
                let error = PyRuntimeError::new_err("cannot reuse an awaitable that has ended");
                (Operation::Done, Err(error))
            }
        }
    }

    /// The objects that a wait refers to, for the garbage collector.
    pub fn references(&self) -> [Option<&Py<PyAny>>; 2] {
        match self {
            Operation::Waiting(Waiting {
                registered: Some(registered),
                ..
            }) => registered.references().map(Some),
            _ => [None, None],
        }
    }
}

fn begin(py: Python<'_>, mut request: Box<dyn Request>) -> (Operation, PyResult<Step>) {
    match request.try_now(py) {
        Ok(Some(result)) => (Operation::Done, Ok(Step::Return(result))),
        Ok(None) => match request.start(py) {
            Ok(future) => {
                let registered = None;
                Waiting { future, registered }.step(py)
            }
            Err(error) => (Operation::Done, Err(error)),
        },
        Err(error) => (Operation::Done, Err(error)),
    }
}

impl Waiting {
    /// Continues the request, and yields an asyncio.Future if it must wait.
    fn step(mut self, py: Python<'_>) -> (Operation, PyResult<Step>) {
        match self.advance(py) {
            Ok(Poll::Ready(finish)) => {
                let result = finish(py).map(Step::Return);
                (Operation::Done, result)
            }
            Ok(Poll::Pending) => match self.awaited(py) {
                Ok(future) => (Operation::Waiting(self), Ok(Step::Yield(future))),
                Err(error) => (Operation::Done, Err(error)),
            },
            Err(error) => (Operation::Done, Err(error)),
        }
    }

    fn advance(&mut self, py: Python<'_>) -> PyResult<Poll<Finish>> {
        // A step before the wake-up leaves the asyncio.Future as it is.
        if let Some(registered) = &self.registered
            && !registered.is_done(py)?
        {
            return Ok(Poll::Pending);
        }
        self.registered = None;
        // Most requests of cached metadata are ready at the first poll, without a waker.
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(finish) = self.future.as_mut().poll(&mut context) {
            return Ok(Poll::Ready(finish));
        }
        let (registered, waker) = Registered::new(py)?;
        let polled = self.future.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_pending() {
            self.registered = Some(registered);
        }
        Ok(polled)
    }

    /// The asyncio.Future, marked as a `yield from` of it does.
    fn awaited(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        budget::waits();
        match &self.registered {
            Some(registered) => registered.awaited(py),
            None => Ok(py.None()),
        }
    }
}
