//! The operation of a future, from its submission to its completion.

use std::task::{Context, Poll};
use std::time::Instant;

use super::in_flight::InFlight;
use super::semaphore::Waiter;
use super::shared::Engine;
use crate::engine::completion::Completion;
use crate::error::Error;
use crate::op::Op;
use crate::policy::stats::{ns_since, sometimes_now};

/// An operation of a future, from its submission to its completion.
#[derive(Debug)]
pub(crate) enum OpFuture {
    /// It waits for a place in the engine.
    Waiting(Op, Option<Waiter>),
    /// It is in flight. The time of its submission is kept for one operation in 64.
    InFlight(InFlight, Option<Instant>),
    /// The future has returned the completion.
    Done,
}

impl OpFuture {
    pub(crate) fn new(op: Op) -> OpFuture {
        OpFuture::Waiting(op, None)
    }

    /// An operation that has its place in the engine already.
    #[cfg(feature = "tokio")]
    pub(crate) fn reserved(engine: &Engine, op: Op, cx: &Context<'_>) -> OpFuture {
        OpFuture::InFlight(engine.launch_reserved(op, cx.waker()), sometimes_now())
    }

    /// Submits the operation, unless the engine is full.
    pub(super) fn submit_if_room(&mut self, engine: &Engine) {
        if engine.check_process("submit").is_err() {
            return;
        }
        if let OpFuture::Waiting(op, waiter) = std::mem::replace(self, OpFuture::Done) {
            *self = match engine.launch_if_room(op) {
                Ok(in_flight) => OpFuture::InFlight(in_flight, sometimes_now()),
                Err(op) => OpFuture::Waiting(op, waiter),
            };
        }
    }

    /// Continues the operation as far as possible without waiting. In a forked child, an operation
    /// that waits for a place is refused. An operation that was in flight at the fork stays
    /// pending, because it and its buffer belong to the parent.
    pub(crate) fn poll(&mut self, engine: &Engine, cx: &Context<'_>) -> Poll<Completion> {
        if let Err(error) = engine.check_process("poll") {
            return self.poll_in_child(error);
        }
        match std::mem::replace(self, OpFuture::Done) {
            OpFuture::Waiting(op, mut waiter) => {
                let timer = sometimes_now();
                *self = match engine.launch(op, cx.waker(), &mut waiter) {
                    Ok(in_flight) => OpFuture::InFlight(in_flight, timer),
                    Err(op) => OpFuture::Waiting(op, waiter),
                };
            }
            OpFuture::InFlight(mut in_flight, timer) => match in_flight.poll(cx) {
                Poll::Ready(completion) => {
                    if let Some(timer) = timer {
                        let policy = engine.policy();
                        policy.handed_off(completion.provenance, ns_since(timer));
                    }
                    return Poll::Ready(completion);
                }
                Poll::Pending => *self = OpFuture::InFlight(in_flight, timer),
            },
            OpFuture::Done => {}
        }
        Poll::Pending
    }

    #[cold]
    fn poll_in_child(&mut self, refused: Error) -> Poll<Completion> {
        match std::mem::replace(self, OpFuture::Done) {
            OpFuture::Waiting(op, _) => {
                let refused = refused.named(op.name());
                return Poll::Ready(Completion::failed(refused, op));
            }
            OpFuture::InFlight(mut in_flight, timer) => match in_flight.completed_before_fork() {
                Some(completion) => return Poll::Ready(completion),
                None => *self = OpFuture::InFlight(in_flight, timer),
            },
            OpFuture::Done => {}
        }
        Poll::Pending
    }
}
