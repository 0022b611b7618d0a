//! The paused clock of a tokio runtime: `tokio::time::pause`, or a test with `start_paused = true`.
//!
//! A runtime with a paused clock that has nothing to do advances it to the next timer. It knows
//! nothing of the operations of an engine. A [`Hold`] therefore gives it something to do until they
//! have ended: a task that only yields. That task ends with the last hold, or with the runtime.
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
    use std::sync::{Arc, Weak};
    use std::time::{Duration, Instant};

    use tokio::runtime::{Handle, Id, RuntimeFlavor};

    /// The task yields this many times without a pause, and then pauses before each yield.
    const QUICK_YIELDS: u32 = 1_000;
    /// The pause. The runtime's other tasks wait meanwhile.
    const PAUSE: Duration = Duration::from_micros(50);

    /// Holds the clock of the current runtime, if that is paused.
    #[derive(Debug)]
    pub(crate) struct Hold(#[allow(dead_code, reason = "dropped to end it")] Option<Arc<Held>>);

    /// A runtime whose clock is held until this value is dropped.
    #[derive(Debug)]
    struct Held {
        runtime: Id,
    }

    thread_local! {
        /// The runtime that this thread runs, if its clock is held.
        static OF_THIS_THREAD: RefCell<Weak<Held>> = const { RefCell::new(Weak::new()) };
    }

    impl Hold {
        pub(crate) fn current() -> Hold {
            let runtime = Handle::try_current().ok();
            let runtime = runtime.filter(|runtime| {
                runtime.runtime_flavor() == RuntimeFlavor::CurrentThread && is_paused()
            });
            Hold(runtime.map(|runtime| hold(&runtime)))
        }
    }

    fn hold(runtime: &Handle) -> Arc<Held> {
        let held = OF_THIS_THREAD.try_with(|held| held.borrow().upgrade()).ok();
        if let Some(held) = held.flatten().filter(|held| held.runtime == runtime.id()) {
            return held;
        }
        let held = Arc::new(Held {
            runtime: runtime.id(),
        });
        runtime.spawn(keep_busy(Arc::downgrade(&held)));
        let _ = OF_THIS_THREAD.try_with(|of_thread| of_thread.replace(Arc::downgrade(&held)));
        held
    }

    /// Keeps the runtime busy while its clock is held. A task of `spawn_blocking` would hold the
    /// clock, too. But the end of the runtime would wait for that task, it would take one of the
    /// runtime's threads, and tokio panics if it cannot start a thread.
    async fn keep_busy(held: Weak<Held>) {
        let mut yields = 0;
        while held.strong_count() > 0 {
            if yields < QUICK_YIELDS {
                yields += 1;
                std::thread::yield_now();
            } else {
                std::thread::sleep(PAUSE);
            }
            tokio::task::yield_now().await;
        }
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
