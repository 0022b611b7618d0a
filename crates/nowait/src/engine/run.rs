//! One operation as a future.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::completion::Completion;
use super::deadlines::Expiry;
use super::in_flight::InFlight;
#[cfg(feature = "tokio")]
use super::in_flight::Reserved;
use super::semaphore::Waiter;
use super::shared::Engine;
use crate::error::{Error, ErrorKind};
use crate::op::{Op, OpType};
use crate::policy::stats::{ns_since, sometimes_now};
use crate::read::start::CallerResult;
use nowait_residency::windows::InProgress;

/// The future of [`Engine::run`].
///
/// It stays pending if it is polled again after it was ready.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Run<'a, O> {
    engine: &'a Engine,
    state: State,
    of: PhantomData<fn() -> O>,
}

#[derive(Debug)]
enum State {
    New(Op),
    Submitted(OpFuture),
    Done,
}

impl Engine {
    /// Runs one operation. The completion has the operation in its own type.
    ///
    /// A read that the page cache serves is ready at the first poll. A future waits for a permit if
    /// the engine is full. Dropping the future does not cancel the operation, except for reads of
    /// pipes, sockets and the like, which may block without end.
    ///
    /// ```
    /// use nowait::op::{Openat2, Read};
    /// # pollster::block_on(async {
    /// let engine = nowait::Engine::process()?;
    /// let open = Openat2::new(c"Cargo.toml".into(), libc::O_RDONLY, 0);
    /// let opened = engine.run(open).await;
    /// opened.result?;
    /// let fd = opened.op.into_fd().expect("it was opened");
    /// let file = nowait::Handle::new(fd)?;
    /// let read = engine.run(Read::new(&file, Box::new(vec![0; 9]), 0)).await;
    /// assert_eq!(read.result?, 9);
    /// # Ok::<(), nowait::Error>(())
    /// # })?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn run<O: OpType>(&self, op: O) -> Run<'_, O> {
        Run {
            engine: self,
            state: State::New(op.into()),
            of: PhantomData,
        }
    }
}

impl<O> Run<'_, O> {
    /// Sets a deadline: see [`Op::deadline`].
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.state = match self.state {
            State::New(op) => State::New(op.deadline(deadline)),
            submitted => submitted,
        };
        self
    }
}

impl<O: OpType> Future for Run<'_, O> {
    type Output = Completion<O>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion<O>> {
        let this = self.get_mut();
        let done = match std::mem::replace(&mut this.state, State::Done) {
            State::New(op) => match this.engine.check_process(op.name()) {
                Err(error) => Poll::Ready(Completion::failed(error, op)),
                Ok(()) => match this.engine.begin(op) {
                    CallerResult::Done(done) => Poll::Ready(done),
                    CallerResult::Rest(op) => {
                        let mut future = OpFuture::new(op);
                        let polled = future.poll(this.engine, cx);
                        this.state = State::Submitted(future);
                        polled
                    }
                },
            },
            State::Submitted(mut future) => {
                let polled = future.poll(this.engine, cx);
                this.state = State::Submitted(future);
                polled
            }
            State::Done => Poll::Pending,
        };
        match done.map(typed) {
            Poll::Ready(Some(done)) => {
                this.state = State::Done;
                Poll::Ready(done)
            }
            _ => Poll::Pending,
        }
    }
}

/// Converts a completion to the operation's own type. The operation always has that type.
fn typed<O: OpType>(completion: Completion) -> Option<Completion<O>> {
    let Completion {
        result,
        op,
        provenance,
        ticket,
    } = completion;
    Some(Completion {
        result,
        op: O::from_op(op)?,
        provenance,
        ticket,
    })
}

/// An operation of a future, from its submission to its completion.
#[derive(Debug)]
pub(crate) enum OpFuture {
    /// It waits for a permit in the engine.
    Waiting(Op, PermitWait),
    /// It is in flight. The time of its submission is kept for one operation in 64.
    InFlight(InFlight, Option<Instant>),
    /// The future has returned the completion.
    Done,
}

/// The wait of a future for a permit.
#[derive(Debug, Default)]
pub(crate) struct PermitWait {
    waiter: Option<Waiter>,
    /// The deadline of the operation, if it has one.
    expiry: Option<Box<Expiry>>,
}

impl PermitWait {
    /// Returns true if the deadline has passed while the future waited.
    fn is_over(&self) -> bool {
        self.expiry.as_ref().is_some_and(|expiry| expiry.is_over())
    }

    /// Has `waker` woken at the deadline.
    fn wake_at(&mut self, engine: &Engine, deadline: Instant, waker: &Waker) {
        match &self.expiry {
            Some(expiry) => expiry.register(waker),
            None => self.expiry = Some(Box::new(engine.wake_at(deadline, waker))),
        }
    }
}

impl OpFuture {
    pub(crate) fn new(op: Op) -> OpFuture {
        OpFuture::Waiting(op, PermitWait::default())
    }

    /// An operation that has its permit in the engine already.
    #[cfg(feature = "tokio")]
    pub(crate) fn reserved(engine: &Engine, op: Op, reserved: Reserved<'_>) -> OpFuture {
        OpFuture::InFlight(engine.launch_reserved(op, reserved), sometimes_now())
    }

    /// Submits the operation, unless the engine is full.
    pub(super) fn submit_if_room(&mut self, engine: &Engine) {
        if engine.check_process("submit").is_err() {
            return;
        }
        if let OpFuture::Waiting(op, waiting) = std::mem::replace(self, OpFuture::Done) {
            *self = match engine.launch_if_room(op) {
                Ok(in_flight) => OpFuture::InFlight(in_flight, sometimes_now()),
                Err(op) => OpFuture::Waiting(op, waiting),
            };
        }
    }

    /// Continues the operation as far as possible without waiting. In a forked child, an operation
    /// that waits for a permit is refused. An operation that was in flight at the fork stays
    /// pending, because it and its buffer belong to the parent.
    pub(crate) fn poll(&mut self, engine: &Engine, cx: &Context<'_>) -> Poll<Completion> {
        if let Err(error) = engine.check_process("poll") {
            return self.poll_in_child(error);
        }
        match std::mem::replace(self, OpFuture::Done) {
            OpFuture::Waiting(op, waiting) => return self.poll_waiting(op, waiting, engine, cx),
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

    /// Submits an operation if it has a permit. At its deadline, an operation leaves the queue for a
    /// permit.
    fn poll_waiting(
        &mut self,
        op: Op,
        mut waiting: PermitWait,
        engine: &Engine,
        cx: &Context<'_>,
    ) -> Poll<Completion> {
        let timer = sometimes_now();
        let late = match waiting.is_over() {
            true => op,
            false => match engine.launch(op, cx.waker(), &mut waiting.waiter) {
                Ok(in_flight) => {
                    *self = OpFuture::InFlight(in_flight, timer);
                    return Poll::Pending;
                }
                Err(op) => {
                    if let Some(deadline) = op.get_deadline() {
                        waiting.wake_at(engine, deadline, cx.waker());
                    }
                    // The deadline may have passed before this waker was registered.
                    if !waiting.is_over() {
                        *self = OpFuture::Waiting(op, waiting);
                        return Poll::Pending;
                    }
                    op
                }
            },
        };
        drop(waiting);
        Poll::Ready(engine.stop(late, ErrorKind::DeadlinePassed))
    }

    /// The operation, if it is in flight.
    pub(crate) fn in_progress(&self) -> Option<InProgress> {
        match self {
            OpFuture::InFlight(in_flight, _) => Some(in_flight.in_progress()),
            OpFuture::Waiting(..) | OpFuture::Done => None,
        }
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
