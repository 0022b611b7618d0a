//! One operation as a future.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use super::op_future::OpFuture;
use super::shared::Engine;
use super::submit::Begun;
use crate::engine::completion::Completion;
use crate::op::{Op, OpType};

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
    /// A read that the page cache serves is ready at the first poll. A future waits for a place if the
    /// engine is full. Dropping the future does not cancel the operation, except for reads of pipes,
    /// sockets and the like, which may block without end.
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
                    Begun::Done(done) => Poll::Ready(done),
                    Begun::Rest(op) => {
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
