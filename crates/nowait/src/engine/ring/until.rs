//! The condition that ends a wait on a ring.

use std::time::Duration;

/// The condition that ends a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// The number of completions to wait for.
    pub(super) count: usize,
    /// The time after which one completion is enough.
    pub(super) within: Option<Duration>,
}

impl Until {
    pub(crate) fn count(count: usize) -> Until {
        Until {
            count,
            within: None,
        }
    }

    /// Waits for `count` completions, or for one after `within`. Only for a ring with
    /// [`waits_for_batches`](super::Ring::waits_for_batches).
    pub(crate) fn batch(count: usize, within: Duration) -> Until {
        Until {
            count,
            within: Some(within),
        }
    }
}
