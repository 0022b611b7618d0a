//! A trip: an operation on an engine, seen from the future that waits for it.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Instant;

use crate::completion::Completion;
use crate::engine::{Engine, Flight, Turn};
use crate::op::Op;
use crate::read::Rest;
use crate::stats::{ns_since, sometimes_now};

/// What an operation on an engine is doing, seen from its future.
#[derive(Debug)]
pub(crate) enum Trip {
    /// Waiting for a place in the engine. What an operation owns need not be `Sync`, and a future is:
    /// the mutex is never locked.
    Waiting(Mutex<Box<Op>>, Option<Rest>, Option<Turn>),
    /// On its way; since when, for one in 64.
    Flying(Arc<Flight>, Option<Instant>),
    /// Landed; the future is used up.
    Over,
}

impl Trip {
    pub(crate) fn new(op: Op, rest: Option<Rest>) -> Trip {
        Trip::Waiting(Mutex::new(Box::new(op)), rest, None)
    }

    /// A trip that has its place in the engine already.
    #[cfg(feature = "tokio")]
    pub(crate) fn reserved(engine: &Engine, op: Op, cx: &Context<'_>) -> Trip {
        Trip::Flying(
            engine.launch_reserved(op, None, cx.waker()),
            sometimes_now(),
        )
    }

    /// Goes on as far as it gets.
    pub(crate) fn poll(&mut self, engine: &Engine, cx: &Context<'_>) -> Poll<Completion> {
        match std::mem::replace(self, Trip::Over) {
            Trip::Waiting(op, rest, mut turn) => {
                let op = op.into_inner().unwrap_or_else(|e| e.into_inner());
                let timer = sometimes_now();
                *self = match engine.launch(op, rest, cx.waker(), &mut turn) {
                    Ok(flight) => Trip::Flying(flight, timer),
                    Err((op, rest)) => Trip::Waiting(Mutex::new(op), rest, turn),
                };
            }
            Trip::Flying(flight, timer) => match flight.poll(cx) {
                Poll::Ready(completion) => {
                    if let Some(timer) = timer {
                        let core = engine.core();
                        core.handed_off(completion.provenance, ns_since(timer));
                    }
                    return Poll::Ready(completion);
                }
                Poll::Pending => *self = Trip::Flying(flight, timer),
            },
            Trip::Over => {}
        }
        Poll::Pending
    }
}
