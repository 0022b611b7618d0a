//! The steps of an awaitable: a request, a pause for the budget, a wait for the engine, a result.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use super::budget;
use super::event_loop::{self, Registered};
use super::memory::Exported;

/// Converts the result of the engine for Python, in the loop's thread.
pub type Finish = Box<dyn FnOnce(Python<'_>, Arguments) -> PyResult<Py<PyAny>> + Send>;

/// The part of a request that the engine does.
pub type InEngine = Pin<Box<dyn Future<Output = Finish> + Send>>;

/// The objects of the program in a request. The part for the engine does not have them, so that the
/// garbage collector sees them.
pub enum Arguments {
    Nothing,
    Path(Py<PyAny>),
    Paths(Py<PyAny>, Py<PyAny>),
    Buffer(Exported),
}

/// Objects for the garbage collector.
pub type References<'a, 'py> = [Option<&'a Bound<'py, PyAny>>; 2];

impl Arguments {
    pub fn references<'py>(&self, py: Python<'py>) -> References<'_, 'py> {
        match self {
            Arguments::Nothing => [None, None],
            Arguments::Path(path) => [Some(path.bind(py)), None],
            Arguments::Paths(first, second) => [Some(first.bind(py)), Some(second.bind(py))],
            Arguments::Buffer(buffer) => [buffer.object(py), None],
        }
    }

    /// The path, or None.
    pub fn path<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        let [path, _] = self.references(py);
        path.cloned().unwrap_or_else(|| py.None().into_bound(py))
    }
}

/// A request that has not begun.
pub trait Request: Send {
    /// The number of bytes that count in the budget of the loop.
    fn bytes(&self) -> usize {
        0
    }

    /// The objects that it refers to.
    fn references<'py>(&self, _py: Python<'py>) -> References<'_, 'py> {
        [None, None]
    }

    /// Does the request in the calling thread if that does not wait for a device, and begins it in the
    /// engine otherwise.
    fn begin(self: Box<Self>, py: Python<'_>) -> PyResult<Begun>;
}

/// A request that has begun.
pub enum Begun {
    Done(Py<PyAny>),
    /// A part was done. The rest gives way to other tasks first.
    Part(Box<dyn Request>),
    InEngine(InEngine, Arguments),
}

/// The state of an awaitable.
pub enum Operation {
    New(Box<dyn Request>),
    /// The awaitable has yielded, because the budget of the loop was spent.
    Paused(Box<dyn Request>),
    Waiting(Waiting),
    /// A step is being done.
    Running,
    Done,
}

/// A request that the engine does.
pub struct Waiting {
    future: InEngine,
    kept: Arguments,
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
                    Ok(_) => pause(py, request),
                    Err(error) => (Operation::Done, Err(error)),
                },
                Err(error) => (Operation::Done, Err(error)),
            },
            // Other tasks had their turn.
            Operation::Paused(request) => match budget::after_pause(py, request.bytes()) {
                Ok(()) => begin(py, request),
                Err(error) => (Operation::Done, Err(error)),
            },
            Operation::Waiting(waiting) => attached(waiting),
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

    /// The objects that it refers to.
    pub fn references<'py>(&self, py: Python<'py>) -> [References<'_, 'py>; 2] {
        match self {
            Operation::New(request) | Operation::Paused(request) => {
                [request.references(py), [None, None]]
            }
            Operation::Waiting(waiting) => {
                let registered = waiting.registered.as_ref();
                let registered = registered.map(|registered| registered.references(py));
                [
                    waiting.kept.references(py),
                    registered.map_or([None, None], |both| both.map(Some)),
                ]
            }
            Operation::Running | Operation::Done => [[None, None], [None, None]],
        }
    }
}

fn begin(py: Python<'_>, request: Box<dyn Request>) -> (Operation, PyResult<Step>) {
    match request.begin(py) {
        Ok(Begun::Done(result)) => (Operation::Done, Ok(Step::Return(result))),
        Ok(Begun::Part(rest)) => pause(py, rest),
        Ok(Begun::InEngine(future, kept)) => {
            let waiting = Waiting {
                future,
                kept,
                registered: None,
            };
            attached(waiting)
        }
        Err(error) => (Operation::Done, Err(error)),
    }
}

/// Does a step that may drop objects: PyO3 drops them at once only in a thread that it has attached.
fn attached(waiting: Waiting) -> (Operation, PyResult<Step>) {
    Python::try_attach(|py| waiting.step(py)).unwrap_or_else(|| {
        // PyO3 attaches no thread at the end of the interpreter's shutdown.
        let error = PyRuntimeError::new_err("the interpreter is shutting down");
        (Operation::Done, Err(error))
    })
}

/// Gives way to the other tasks of the loop.
fn pause(py: Python<'_>, request: Box<dyn Request>) -> (Operation, PyResult<Step>) {
    budget::waits();
    (Operation::Paused(request), Ok(Step::Yield(py.None())))
}

impl Waiting {
    /// Continues the request, and yields an asyncio.Future if it must wait.
    fn step(mut self, py: Python<'_>) -> (Operation, PyResult<Step>) {
        match self.advance(py) {
            Ok(Poll::Ready(finish)) => {
                let result = finish(py, self.kept).map(Step::Return);
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
