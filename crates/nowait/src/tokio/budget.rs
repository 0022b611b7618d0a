//! The cooperative budget of a task.

use std::task::{Context, Poll};

use ::tokio::task::coop;

/// Charges a task's cooperative budget for a copy in its thread, beyond the one unit of every operation. A
/// task with large hits thus yields as soon as one with small hits.
pub(super) fn charge(copied: usize, cx: &mut Context<'_>) {
    for _ in 0..copied.saturating_sub(1) / COPIED_FOR_A_UNIT {
        match coop::poll_proceed(cx) {
            Poll::Ready(unit) => unit.made_progress(),
            // The budget is used up. The next operation has to wait.
            Poll::Pending => break,
        }
    }
}

/// Bytes that take about as long to copy as a read of one page takes.
const COPIED_FOR_A_UNIT: usize = 16 << 10;
