//! The cooperative budget of a task.

use std::task::{Context, Poll};

use ::tokio::task::coop;

/// Takes from a task's cooperative budget what a copy in its thread costs beyond the one unit that
/// every operation costs, so that a task of large hits keeps its event loop no longer than one of small
/// ones.
pub(super) fn charge(copied: usize, cx: &mut Context<'_>) {
    for _ in 0..copied.saturating_sub(1) / COPIED_FOR_A_UNIT {
        match coop::poll_proceed(cx) {
            Poll::Ready(unit) => unit.made_progress(),
            // Spent: the next operation has to wait for its turn.
            Poll::Pending => break,
        }
    }
}

/// Bytes. As many as take about as long to copy as a read of a page takes.
const COPIED_FOR_A_UNIT: usize = 16 << 10;
