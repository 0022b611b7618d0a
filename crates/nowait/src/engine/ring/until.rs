//! The condition that a wait on a ring ends with.

use std::time::Duration;

/// What a wait is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// So many completions.
    pub(super) count: usize,
    /// After this time, one.
    pub(super) within: Option<Duration>,
}

impl Until {
    pub(crate) fn count(count: usize) -> Until {
        Until {
            count,
            within: None,
        }
    }

    /// So many, or after this time one. Only of a ring that [`waits_for_batches`](super::Ring::waits_for_batches).
    pub(crate) fn batch(count: usize, within: Duration) -> Until {
        Until {
            count,
            within: Some(within),
        }
    }
}
