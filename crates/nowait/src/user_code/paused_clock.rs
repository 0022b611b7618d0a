//! The paused clock of a tokio runtime: `tokio::time::pause`, or a test with `start_paused = true`.
//!
//! A runtime with a paused clock that has nothing to do advances it to the next timer. The clock
//! stands still while a task of `spawn_blocking` runs, as the calls of `tokio::fs` are. For
//! operations of an engine, which the runtime knows nothing of, a [`Hold`] keeps such a task
//! waiting until they have ended.
//!
//! A hold is made with each waker that a future of this crate registers, and dropped after that
//! waker has been woken. While the clock runs, that costs two readings of it, and none in a runtime
//! with several threads, whose clock cannot be paused.

/// Holds the clock of the current runtime, if that is paused.
#[cfg(not(feature = "paused-clock"))]
#[derive(Debug)]
pub(crate) struct Hold;

#[cfg(not(feature = "paused-clock"))]
impl Hold {
    pub(crate) fn current() -> Hold {
        Hold
    }
}

#[cfg(feature = "paused-clock")]
pub(crate) use held::Hold;

#[cfg(feature = "paused-clock")]
mod held {
    use std::cell::RefCell;
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Weak};
    use std::time::Instant;

    use tokio::runtime::{Handle, Id, RuntimeFlavor};

    use crate::user_code;

    /// Holds the clock of the current runtime, if that is paused.
    #[derive(Debug)]
    pub(crate) struct Hold(#[allow(dead_code, reason = "dropped to end it")] Option<Arc<Held>>);

    /// A waiting task of `spawn_blocking`, which ends when this value is dropped.
    #[derive(Debug)]
    struct Held {
        runtime: Id,
        _end: Sender<()>,
    }

    thread_local! {
        /// The task of the runtime that this thread runs, if one is waiting.
        static OF_THIS_THREAD: RefCell<Weak<Held>> = const { RefCell::new(Weak::new()) };
    }

    impl Hold {
        pub(crate) fn current() -> Hold {
            let runtime = Handle::try_current().ok();
            let runtime = runtime.filter(|runtime| {
                runtime.runtime_flavor() == RuntimeFlavor::CurrentThread && is_paused()
            });
            Hold(runtime.and_then(|runtime| hold(&runtime)))
        }
    }

    fn hold(runtime: &Handle) -> Option<Arc<Held>> {
        let held = OF_THIS_THREAD.try_with(|held| held.borrow().upgrade()).ok();
        if let Some(held) = held.flatten().filter(|held| held.runtime == runtime.id()) {
            return Some(held);
        }
        let (end, wait) = channel();
        // tokio panics if it cannot start a thread.
        user_code::call(|| runtime.spawn_blocking(move || wait.recv()))?;
        let held = Arc::new(Held {
            runtime: runtime.id(),
            _end: end,
        });
        let _ = OF_THIS_THREAD.try_with(|of_thread| of_thread.replace(Arc::downgrade(&held)));
        Some(held)
    }

    /// Returns true if tokio's clock stands still while that of the system runs.
    fn is_paused() -> bool {
        let before = tokio::time::Instant::now();
        let begun = Instant::now();
        // The system's clock may have a coarse resolution.
        let runs = (0..1000).any(|_| Instant::now() > begun);
        runs && tokio::time::Instant::now() == before
    }
}
