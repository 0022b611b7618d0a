//! The budget of an event loop: the work that its tasks may do in one iteration without giving way to
//! other tasks and timers.
//!
//! A read of cached data needs no turn of the loop, so that a task that reads cached data would
//! keep the loop for itself. All tasks of a loop share one budget. The first request of an
//! iteration schedules its reset.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCFunction;

use super::event_loop;
use crate::hang;

/// The number of requests of a budget.
const REQUESTS: u32 = 256;
/// The number of bytes of a budget.
const BYTES: usize = 4 << 20;
/// The time of requests that follow each other without a wait, with the program's own work between them.
const TIME: Duration = Duration::from_millis(1);
/// One request in `TIMED` looks at the clock, and each request of more than `TIMED_BYTES`, unless the
/// last ones took longer than `SLOW`.
const TIMED: u32 = 4;
const TIMED_BYTES: usize = 64 << 10;
const SLOW: Duration = Duration::from_micros(100);

/// The budget of the loop that runs in this thread. A thread runs one loop at a time.
struct Budget {
    requests: Cell<u32>,
    bytes: Cell<usize>,
    time: Cell<Duration>,
    /// When the clock was read last; `None` before the first request of an iteration.
    timed: Cell<Option<Instant>>,
    /// True if a task has waited since then: the time of other tasks does not count.
    has_waited: Cell<bool>,
    /// True if the program does much between two requests.
    slow: Cell<bool>,
    /// The loop that will call `reset`.
    of: RefCell<Option<Py<PyAny>>>,
}

thread_local! {
    static BUDGET: Budget = const {
        Budget {
            requests: Cell::new(0),
            bytes: Cell::new(0),
            time: Cell::new(Duration::ZERO),
            timed: Cell::new(None),
            has_waited: Cell::new(false),
            slow: Cell::new(false),
            of: RefCell::new(None),
        }
    };
}

/// Counts a request. Returns false if the budget is spent, so that the task must give way.
///
/// # Errors
/// RuntimeError if no asyncio loop runs.
#[inline]
pub fn spend(py: Python<'_>, bytes: usize) -> PyResult<bool> {
    BUDGET.with(|budget| {
        let Some(timed) = budget.timed.get() else {
            budget.renew(py, bytes)?;
            return Ok(true);
        };
        let requests = budget.requests.get();
        let spent = requests == 0 || budget.bytes.get() < bytes;
        if spent || budget.is_late(requests, bytes, timed) {
            budget.requests.set(0);
            return Ok(false);
        }
        budget.requests.set(requests - 1);
        budget.bytes.set(budget.bytes.get() - bytes);
        Ok(true)
    })
}

/// Notes that a task waits, so that others run before the next request.
pub fn waits() {
    BUDGET.with(|budget| budget.has_waited.set(true));
}

/// Counts a request that has given way once, and that is not refused again.
pub fn after_pause(py: Python<'_>, bytes: usize) -> PyResult<()> {
    if spend(py, bytes)? {
        return Ok(());
    }
    BUDGET.with(|budget| budget.check_loop(py))
}

impl Budget {
    /// Begins a new budget, and schedules its end.
    fn renew(&self, py: Python<'_>, bytes: usize) -> PyResult<()> {
        let _guard = hang::guard();
        let running = event_loop::running(py)?;
        let reset = reset(py)?;
        running.call_method1(pyo3::intern!(py, "call_soon"), (reset,))?;
        self.requests.set(REQUESTS - 1);
        self.bytes.set(BYTES.saturating_sub(bytes));
        self.time.set(Duration::ZERO);
        self.timed.set(Some(Instant::now()));
        self.has_waited.set(false);
        self.of.replace(Some(running.unbind()));
        Ok(())
    }

    /// True if the time is spent, as far as the clock was read.
    #[inline]
    fn is_late(&self, requests: u32, bytes: usize, timed: Instant) -> bool {
        let is_timed = requests.is_multiple_of(TIMED) || bytes > TIMED_BYTES;
        if self.has_waited.replace(false) {
            self.timed.set(Some(Instant::now()));
        } else if self.slow.get() || is_timed {
            let now = Instant::now();
            let took = now - timed;
            self.timed.set(Some(now));
            self.time.set(self.time.get() + took);
            self.slow.set(took > SLOW);
        }
        self.time.get() > TIME
    }

    /// A loop that has stopped does not reset its budget. The next loop of this thread does.
    fn check_loop(&self, py: Python<'_>) -> PyResult<()> {
        let running = event_loop::running(py)?;
        let is_same = self.of.borrow().as_ref().is_some_and(|of| of.is(&running));
        match is_same {
            true => Ok(()),
            false => self.renew(py, 0),
        }
    }
}

/// The function that ends a budget.
fn reset(py: Python<'_>) -> PyResult<&Bound<'_, PyCFunction>> {
    static RESET: PyOnceLock<Py<PyCFunction>> = PyOnceLock::new();
    let made = RESET.get_or_try_init(py, || {
        let reset = PyCFunction::new_closure(py, None, None, |_, _| {
            let _guard = hang::guard();
            let of = BUDGET.with(|budget| {
                budget.timed.set(None);
                budget.of.take()
            });
            drop(of);
        });
        reset.map(Bound::unbind)
    });
    made.map(|reset| reset.bind(py))
}
