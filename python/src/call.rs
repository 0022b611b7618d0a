//! Runs work in a thread while the calling thread handles signals and reports progress.
//!
//! ```text
//!  calling thread: waits without the GIL ─► signals? progress? ─► callback ─► result
//!  thread:         work ─────────────────────────────────────────────────────────┘
//! ```
//! The thread may wait for a device or a server that does not answer. It never attaches to the
//! interpreter. After KeyboardInterrupt, or an exception of the callback, it is asked to stop.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nowait_page_cache as page_cache;
use nowait_page_cache::Stop;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::hang;
use crate::progress::Progress;

/// The interval at which signals are checked and progress is reported.
const INTERVAL: Duration = Duration::from_millis(50);
/// The time that an interrupted call waits for its thread. A thread that waits for a device ends
/// later: it has nothing of the interpreter.
pub const PATIENCE: Duration = Duration::from_millis(120);

/// The state that both threads see.
struct Shared<T> {
    state: Mutex<State<T>>,
    done: Condvar,
}

struct State<T> {
    /// The last progress that was not reported.
    progress: Option<page_cache::Progress>,
    result: Option<T>,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The state is consistent after each assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the result or the end of the interval.
    fn wait(&self, interval: Duration) -> (Option<T>, Option<page_cache::Progress>) {
        let state = self.lock();
        let waited = self
            .done
            .wait_timeout_while(state, interval, |state| state.result.is_none());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (state.result.take(), state.progress.take())
    }

    /// Waits for the result, and drops it. Returns false after this time.
    fn ends_within(&self, time: Duration, thread: &JoinHandle<()>) -> bool {
        self.wait(time).0.is_some() || thread.is_finished()
    }
}

/// Runs `work` in a thread, and returns its result. Calls `callback` with the progress in the
/// calling thread, about every 50 ms and at the end.
///
/// # Errors
/// The exceptions of signal handlers and of the callback, after `stop` was requested.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    stop: &Stop,
    callback: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(page_cache::Progress)) -> T + Send + 'static,
) -> PyResult<T> {
    let _guard = hang::guard();
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            progress: None,
            result: None,
        }),
        done: Condvar::new(),
    });
    let its = shared.clone();
    let work = move || {
        let result = work(&mut |progress| its.lock().progress = Some(progress));
        its.lock().result = Some(result);
        its.done.notify_all();
    };
    let thread = start(work)?;
    let result = wait(py, &shared, &thread, callback);
    if result.is_err() {
        stop.request();
    }
    // The thread ends at once after its result.
    let has_ended = result.is_ok() || py.detach(|| shared.ends_within(PATIENCE, &thread));
    if has_ended {
        let ended = py.detach(|| thread.join());
        ended.map_err(|_| PyRuntimeError::new_err("a thread of nowait has panicked"))?;
    }
    result
}

/// Starts a thread that takes no signals.
pub fn start(work: impl FnOnce() + Send + 'static) -> PyResult<JoinHandle<()>> {
    let mut mask = SigSet::empty();
    let blocked = SigSet::all();
    let failed = |errno: nix::Error| PyErr::from(std::io::Error::from(errno));
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&blocked), Some(&mut mask)).map_err(failed)?;
    let thread = thread::Builder::new().name("nowait".into()).spawn(work);
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&mask), None).map_err(failed)?;
    thread.map_err(|_| PyRuntimeError::new_err("can't start new thread"))
}

fn wait<T: Send>(
    py: Python<'_>,
    shared: &Shared<T>,
    thread: &JoinHandle<()>,
    callback: Option<&Bound<'_, PyAny>>,
) -> PyResult<T> {
    loop {
        let (result, progress) = py.detach(|| shared.wait(INTERVAL));
        if let (Some(callback), Some(progress)) = (callback, progress) {
            callback.call1((Progress::from(progress),))?;
        }
        if let Some(result) = result {
            return Ok(result);
        }
        py.check_signals()?;
        if thread.is_finished() && shared.lock().result.is_none() {
            return Err(PyRuntimeError::new_err("a thread of nowait has panicked"));
        }
    }
}
