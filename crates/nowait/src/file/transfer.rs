//! The common part of the futures of positional reads and writes.

use std::task::{Context, Poll, ready};
use std::time::Instant;

use super::keep_cache::{Access, KeepCache};
use crate::engine::completion::{BufResult, Completion};
use crate::engine::{Engine, OpFuture};
use crate::error::{Error, ErrorKind};
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::op::Op;
use crate::read::start::CallerResult;

/// The parts of a [`File`](crate::File).
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    pub(super) handle: &'a Handle,
    pub(super) engine: &'a Engine,
    pub(super) keep_cache: Option<&'a KeepCache>,
}

/// A positional read or write, as a future.
#[derive(Debug)]
pub(super) struct Transfer<'a, B> {
    pub(super) file: Parts<'a>,
    /// The use of the page cache, if it is to be left as it was.
    pub(super) access: Option<Access<'a>>,
    /// The name of the operation, for errors.
    pub(super) name: &'static str,
    /// The error of a short transfer, if it has to be complete.
    short: Option<ErrorKind>,
    state: State<B>,
    pub(super) offset: u64,
    pub(super) flags: RwFlags,
    pub(super) deadline: Option<Instant>,
    /// The number of bytes of the buffer, set by the first poll.
    pub(super) len: usize,
}

#[derive(Debug)]
enum State<B> {
    New(B),
    InFlight(OpFuture),
    Done,
}

impl<'a, B> Transfer<'a, B> {
    pub(super) fn new(
        file: Parts<'a>,
        name: &'static str,
        short: Option<ErrorKind>,
        buffer: B,
        offset: u64,
    ) -> Transfer<'a, B> {
        Transfer {
            file,
            access: None,
            name,
            short,
            state: State::New(buffer),
            offset,
            flags: RwFlags::empty(),
            deadline: None,
            len: 0,
        }
    }

    /// Returns true if a short transfer is an error.
    pub(super) fn is_exact(&self) -> bool {
        self.short.is_some()
    }

    /// Polls the transfer. `begin` makes the calling thread's part. `own` returns the buffer of a
    /// completed operation in its own type, which it always has.
    // A read of cached data takes less than a microsecond. Moves of results from function to
    // function are some percent of it.
    #[inline]
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        begin: impl FnOnce(&mut Self, B) -> CallerResult<BufResult<B>>,
        own: impl FnOnce(Op) -> Option<B>,
    ) -> Poll<BufResult<B>> {
        if matches!(self.state, State::New(_))
            && let State::New(buffer) = std::mem::replace(&mut self.state, State::Done)
        {
            match begin(self, buffer) {
                CallerResult::Done(done) => return Poll::Ready(self.finish(done)),
                CallerResult::Rest(op) => self.submit(op),
            }
        }
        self.poll_in_flight(cx, own)
    }

    fn submit(&mut self, op: Op) {
        self.state = State::InFlight(OpFuture::new(match self.deadline {
            Some(deadline) => op.deadline(deadline),
            None => op,
        }));
    }

    fn poll_in_flight(
        &mut self,
        cx: &mut Context<'_>,
        own: impl FnOnce(Op) -> Option<B>,
    ) -> Poll<BufResult<B>> {
        let State::InFlight(operation) = &mut self.state else {
            return Poll::Pending;
        };
        let polled = operation.poll(self.file.engine, cx);
        if let Some(access) = &mut self.access {
            access.operation = operation.in_progress();
        }
        let Completion {
            result,
            op,
            provenance,
            ..
        } = ready!(polled);
        self.state = State::Done;
        match own(op) {
            Some(buf) => Poll::Ready(self.finish(BufResult::new(result, buf, provenance))),
            None => Poll::Pending,
        }
    }

    /// Ends the use of the page cache, and names the operation and the file in the error.
    #[inline]
    fn finish(&mut self, mut done: BufResult<B>) -> BufResult<B> {
        if let Some(mut access) = self.access.take() {
            access.operation = None;
        }
        if let Ok(n) = done.result
            && let Some(short) = self.short
            && n < self.len
        {
            done.result = Err(Error::new(self.name, short));
        }
        if done.result.is_err() {
            let path = self.file.handle.shared_path();
            let name = |error: Error| error.named(self.name).on(path);
            done.result = done.result.map_err(name);
        }
        done
    }
}
