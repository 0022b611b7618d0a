//! Ctrl-C: the first one asks a verb to end and to say what it has, the second one ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use nowait::scan::Canceller;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::problem::{INTERRUPTED, Problem};

/// How often it is looked at whether what is waited for is to be cancelled.
const LOOK: Duration = Duration::from_millis(20);

/// Whether somebody wants the verb to end.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on SIGINT and SIGTERM ask for the end; a second one ends the process at once.
    pub fn on_signals() -> Result<Stop, Problem> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the shutdown looks at the flag before this signal raises it.
            flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), stop.0.clone())
                .and_then(|_| flag::register(signal, stop.0.clone()))
                .map_err(|e| Problem::of("cannot catch Ctrl-C", e))?;
        }
        Ok(stop)
    }

    /// Does something, and cancels it when the verb is to end: this thread may be waiting for it.
    pub fn or_cancel<T>(&self, canceller: &Canceller, work: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            let (working, over) = mpsc::channel::<()>();
            scope.spawn(move || {
                // Until the other end goes, with the work's end.
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

    /// Whether the verb is to end.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
