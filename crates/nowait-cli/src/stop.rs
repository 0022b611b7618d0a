//! Ctrl-C: the first one asks the verb to stop and to print its results so far, the second one ends the
//! process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use nowait::scan::Canceller;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::problem::{INTERRUPTED, Problem};

/// The interval at which a waiting verb checks for a stop request.
const LOOK: Duration = Duration::from_millis(20);

/// A request to stop the verb. Clones share the request.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Makes SIGINT and SIGTERM request a stop. A second signal ends the process immediately.
    pub fn on_signals() -> Result<Stop, Problem> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the shutdown must check the flag before this signal sets it.
            flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), stop.0.clone())
                .and_then(|_| flag::register(signal, stop.0.clone()))
                .map_err(|e| Problem::of("cannot catch Ctrl-C", e))?;
        }
        Ok(stop)
    }

    /// Runs `work`, and calls `canceller` from another thread if a stop is requested meanwhile.
    pub fn or_cancel<T>(&self, canceller: &Canceller, work: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            let (working, over) = mpsc::channel::<()>();
            scope.spawn(move || {
                // Ends when the sender is dropped, after the work.
                while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                    if self.asked() {
                        return canceller.cancel();
                    }
                }
            });
            let done = work();
            drop(working);
            done
        })
    }

    /// Returns true if a stop was requested.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
