//! Cancelling a scan or a walk from another thread.

use std::sync::{Arc, Weak};

use crate::task_group::{Job, TaskGroup};

/// Cancels a [`Scan`](crate::Scan) or a [`Walk`](crate::Walk), from any thread.
#[derive(Clone)]
pub struct Canceller(Weak<dyn Cancel>);

/// A task that can be cancelled.
pub(crate) trait Cancel: Send + Sync {
    fn cancel(&self);
}

impl<J: Job> Cancel for TaskGroup<J> {
    fn cancel(&self) {
        self.cancel();
    }
}

impl Canceller {
    pub(crate) fn new(group: Arc<dyn Cancel>) -> Canceller {
        Canceller(Arc::downgrade(&group))
    }

    /// Cancels the scan or walk; see [`Entries::cancel`](crate::scan::Entries::cancel). Has no
    /// effect if it has ended or was dropped.
    pub fn cancel(&self) {
        if let Some(group) = self.0.upgrade() {
            group.cancel();
        }
    }
}

impl std::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Canceller")
    }
}
