//! The completions of the engine for one asyncio event loop: a list and an eventfd(2).
//!
//! ```text
//!  engine's thread: wakes a waker ─► list ─► eventfd (if the list was empty)
//!  loop's thread:   eventfd ─► EventLoop::complete ─► asyncio.Future.set_result for each
//! ```
//! The engine's threads use neither the interpreter nor the loop.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyWeakrefReference;
use pyo3::{PyTraverseError, PyVisit};
use rustix::event::{EventfdFlags, eventfd};

use crate::hang;

/// The operations that one loop waits for.
///
/// The loop holds the object as a reader of the eventfd, and nothing else does for long. The object is
/// freed when the loop is closed.
#[pyclass(frozen, weakref, module = "nowait.asyncio_files")]
pub struct EventLoop {
    ready: Arc<Ready>,
    /// The future of the loop to be set when the operation wakes.
    waiting: Mutex<HashMap<u64, Py<PyAny>>>,
    next: AtomicU64,
    process: u32,
}

/// The operations whose wakers were called.
struct Ready {
    list: Mutex<Vec<u64>>,
    eventfd: OwnedFd,
}

/// Wakes one operation.
struct Wakes {
    ready: Arc<Ready>,
    operation: u64,
}

/// An operation that waits for its waker.
pub struct Registered {
    event_loop: Py<EventLoop>,
    operation: u64,
    future: Py<PyAny>,
}

/// The asyncio event loop that runs in this thread.
///
/// # Errors
/// RuntimeError if there is none.
pub fn running(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static RUNNING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let running = RUNNING.import(py, "asyncio", "get_running_loop")?;
    running.call0().map_err(|error| {
        let is_missing = error.is_instance_of::<PyRuntimeError>(py);
        let why = "nowait.asyncio_files needs a running asyncio event loop: other libraries, such as trio, are not supported";
        match is_missing {
            true => PyRuntimeError::new_err(why),
            false => error,
        }
    })
}

impl EventLoop {
    /// The running loop, and its completions, which are made on first use, and again in a forked
    /// child.
    fn of_running(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Bound<'_, EventLoop>)> {
        let running = running(py)?;
        let all = Self::all(py)?;
        let known = all.call_method1(intern!(py, "get"), (&running,))?;
        if let Ok(known) = known.cast::<PyWeakrefReference>()
            && let Some(known) = known.upgrade_as::<EventLoop>()?
            && known.get().process == std::process::id()
        {
            return Ok((running, known));
        }
        let made = Bound::new(py, EventLoop::new()?)?;
        let fd = made.get().ready.eventfd.as_raw_fd();
        let complete = made.getattr("complete")?;
        running.call_method1("add_reader", (fd, &complete))?;
        let weak = PyWeakrefReference::new(&made)?;
        all.set_item(&running, &weak)?;
        Ok((running, made))
    }

    /// Weak references by loop.
    fn all(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
        static ALL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let all = ALL.get_or_try_init(py, || {
            let weak = py.import("weakref")?.getattr("WeakKeyDictionary")?;
            weak.call0().map(Bound::unbind)
        });
        all.map(|all| all.bind(py))
    }

    fn new() -> PyResult<EventLoop> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(EventLoop {
            ready: Arc::new(Ready {
                list: Mutex::new(Vec::new()),
                eventfd: eventfd(0, flags).map_err(std::io::Error::from)?,
            }),
            waiting: Mutex::new(HashMap::new()),
            next: AtomicU64::new(0),
            process: std::process::id(),
        })
    }
}

#[pymethods]
impl EventLoop {
    /// Sets the results of the futures whose operations have woken.
    fn complete(&self, py: Python<'_>) -> PyResult<()> {
        let _guard = hang::guard();
        self.wake_all(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let waiting = self.waiting.try_lock();
        waiting.map_or(Ok(()), |waiting| {
            let mut futures = waiting.values();
            futures.try_for_each(|future| visit.call(future))
        })
    }

    fn __clear__(&self) {
        let _guard = hang::guard();
        let waiting = self.waiting.try_lock();
        let waiting = waiting.map(|mut waiting| std::mem::take(&mut *waiting));
        // The destructors of the futures run without the lock.
        drop(waiting);
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        self.__clear__();
    }
}

impl EventLoop {
    fn wake_all(&self, py: Python<'_>) -> PyResult<()> {
        // The number does not matter, and an eventfd that was read before is no error.
        let _ = rustix::io::read(&self.ready.eventfd, &mut [0; 8]);
        let woken = std::mem::take(&mut *lock(&self.ready.list));
        // An exception, such as KeyboardInterrupt, must not keep the other tasks from waking.
        let mut first = Ok(());
        for operation in woken {
            let future = lock(&self.waiting).remove(&operation);
            if let Some(future) = future {
                first = first.and(wake(future.bind(py)));
            }
        }
        first
    }

    fn waker(&self, operation: u64) -> Waker {
        let ready = self.ready.clone();
        Waker::from(Arc::new(Wakes { ready, operation }))
    }
}

/// Sets the result of a future.
fn wake(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    let is_done = future.call_method0(intern!(py, "done"))?.is_truthy()?;
    if !is_done {
        future.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

impl Registered {
    /// Makes an asyncio.Future of the running loop, and the waker that sets its result.
    ///
    /// # Errors
    /// RuntimeError if no asyncio loop runs.
    pub fn new(py: Python<'_>) -> PyResult<(Registered, Waker)> {
        let (running, event_loop) = EventLoop::of_running(py)?;
        let future = running.call_method0(intern!(py, "create_future"))?;
        let future = future.unbind();
        let state = event_loop.get();
        let operation = state.next.fetch_add(1, Relaxed);
        let waker = state.waker(operation);
        lock(&state.waiting).insert(operation, future.clone_ref(py));
        let registered = Registered {
            event_loop: event_loop.unbind(),
            operation,
            future,
        };
        Ok((registered, waker))
    }

    /// True if the waker was called, or the future was cancelled.
    pub fn is_done(&self, py: Python<'_>) -> PyResult<bool> {
        self.future
            .call_method0(py, intern!(py, "done"))?
            .is_truthy(py)
    }

    /// The future, marked for the task that will wait for it, as the future's own `__await__` does.
    pub fn awaited(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let marked = intern!(py, "_asyncio_future_blocking");
        self.future.setattr(py, marked, true)?;
        Ok(self.future.clone_ref(py))
    }

    /// The objects that it refers to.
    pub fn references<'py>(&self, py: Python<'py>) -> [&Bound<'py, PyAny>; 2] {
        [self.event_loop.bind(py).as_any(), self.future.bind(py)]
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // The future is dropped after the lock.
        let _future = lock(&self.event_loop.get().waiting).remove(&self.operation);
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        let mut list = lock(&self.ready.list);
        list.push(self.operation);
        let is_first = list.len() == 1;
        drop(list);
        if is_first {
            // Its counter saturates, and no other error is possible.
            let _ = rustix::io::write(&self.ready.eventfd, &1u64.to_ne_bytes());
        }
    }
}

/// The state is consistent after each change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
