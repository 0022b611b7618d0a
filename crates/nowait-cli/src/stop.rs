//! Ctrl-C: the first one asks the verb to stop and to print its results so far, the second one ends the
//! process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::problem::{INTERRUPTED, Problem};

/// The interval at which a waiting verb checks for a stop request.
pub const LOOK: Duration = Duration::from_millis(20);

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

    /// Returns true if a stop was requested.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
