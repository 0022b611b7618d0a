//! A trip: an operation on an engine, seen from the future that waits for it.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::completion::Completion;
use crate::engine::{Engine, Flight, Turn};
use crate::op::Op;
use crate::read::Rest;

/// What an operation on an engine is doing, seen from its future.
#[derive(Debug)]
pub(super) enum Trip {
    /// Waiting for a place in the engine.
    Waiting(Box<Op>, Option<Rest>, Option<Turn>),
    /// On its way.
    Flying(Arc<Flight>),
    /// Landed; the future is used up.
    Over,
}

impl Trip {
    pub(super) fn new(op: Op, rest: Option<Rest>) -> Trip {
        Trip::Waiting(Box::new(op), rest, None)
    }

    /// Goes on as far as it gets.
    pub(super) fn poll(&mut self, engine: &Engine, cx: &Context<'_>) -> Poll<Completion> {
        match std::mem::replace(self, Trip::Over) {
            Trip::Waiting(op, rest, mut turn) => {
                *self = match engine.launch(op, rest, cx.waker(), &mut turn) {
                    Ok(flight) => Trip::Flying(flight),
                    Err((op, rest)) => Trip::Waiting(op, rest, turn),
                };
            }
            Trip::Flying(flight) => match flight.poll(cx) {
                Poll::Ready(completion) => return Poll::Ready(completion),
                Poll::Pending => *self = Trip::Flying(flight),
            },
            Trip::Over => {}
        }
        Poll::Pending
    }
}
