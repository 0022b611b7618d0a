//! A future's operation in the engine.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use super::op_state::OpState;
use crate::engine::completion::{Completion, Ticket};
use crate::error::ErrorKind;

/// An engine on which operations can be cancelled.
pub(super) trait Cancel: std::fmt::Debug + Send + Sync {
    /// Asks the engine to stop an operation.
    fn cancel(&self, ticket: Ticket, why: ErrorKind);
}

/// An operation in flight, as held by its future.
///
/// If it is dropped before the completion arrives, a read that may wait without end is stopped, so
/// that its place is given back. Other operations continue: a write that has begun cannot be
/// undone, and a device completes its operations in bounded time.
#[derive(Debug)]
pub(crate) struct InFlight {
    op_state: Arc<OpState>,
    stop: Option<(Weak<dyn Cancel>, Ticket)>,
}

impl InFlight {
    pub(super) fn new(
        op_state: Arc<OpState>,
        stop: Option<(Weak<dyn Cancel>, Ticket)>,
    ) -> InFlight {
        InFlight { op_state, stop }
    }

    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<Completion> {
        let polled = self.op_state.poll(cx);
        if polled.is_ready() {
            self.stop = None;
        }
        polled
    }

    /// Returns the completion in a forked child, if it arrived before the fork.
    pub(crate) fn completed_before_fork(&mut self) -> Option<Completion> {
        self.stop = None;
        self.op_state.completed_before_fork()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if Arc::strong_count(&self.op_state) > 1 {
            self.op_state.forget_waker();
        }
        if let Some((engine, ticket)) = self.stop.take()
            && let Some(engine) = engine.upgrade()
        {
            engine.cancel(ticket, ErrorKind::Cancelled);
        }
    }
}
