//! A request to stop the work early. Its results so far remain.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The interval at which waiting work checks for a stop request.
pub const LOOK: Duration = Duration::from_millis(20);

/// A request to stop. Clones share the request.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Requests the stop.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if a stop was requested.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl From<Arc<AtomicBool>> for Stop {
    /// A stop that is requested when this flag becomes true, for example by a signal handler.
    fn from(flag: Arc<AtomicBool>) -> Stop {
        Stop(flag)
    }
}
