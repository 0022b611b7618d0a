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
use crate::read::start::{Rest, Start};

/// The parts of a [`File`](crate::File).
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    pub(super) handle: &'a Handle,
    pub(super) engine: &'a Engine,
    pub(super) keep_cache: Option<&'a KeepCache>,
}

/// A function of [`File`](crate::File) that transfers bytes.
#[derive(Debug)]
pub(super) struct Function {
    /// Its name, for errors.
    pub(super) name: &'static str,
    /// The error of a short transfer, if it has to be complete.
    pub(super) short: Option<ErrorKind>,
}

/// The call of a function.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) file: Parts<'a>,
    pub(super) function: &'static Function,
    pub(super) offset: u64,
    pub(super) flags: RwFlags,
}

/// A positional read or write, as a future.
#[derive(Debug)]
pub(super) struct Transfer<'a, B> {
    pub(super) call: Call<'a>,
    pub(super) deadline: Option<Instant>,
    /// The use of the page cache, if it is to be left as it was.
    access: Option<Access<'a>>,
    state: State<B>,
}

#[derive(Debug)]
enum State<B> {
    New(B),
    InFlight { operation: OpFuture, len: usize },
    Done,
}

impl<'a, B> Transfer<'a, B> {
    pub(super) fn new(
        file: Parts<'a>,
        function: &'static Function,
        buffer: B,
        offset: u64,
    ) -> Transfer<'a, B> {
        Transfer {
            call: Call {
                file,
                function,
                offset,
                flags: RwFlags::empty(),
            },
            deadline: None,
            access: None,
            state: State::New(buffer),
        }
    }

    /// Polls the transfer. `begin` makes the calling thread's part, and returns its result and the length of the
    /// buffer. `rest` makes the operation for the rest, or the result if there can be none. `own` returns the buffer
    /// of a completed operation in its own type, which it always has.
    // A read of cached data takes less than a microsecond, and moves of its result are some percent of that. So
    // the buffer stays in the future, and is moved once.
    #[inline]
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        begin: impl FnOnce(&Call<'a>, &mut Option<Access<'a>>, &mut B) -> (Start, usize),
        rest: impl FnOnce(&Call<'a>, B, Rest) -> Result<Op, BufResult<B>>,
        own: impl FnOnce(Op) -> Option<B>,
    ) -> Poll<BufResult<B>> {
        if let State::New(buffer) = &mut self.state {
            let (started, len) = begin(&self.call, &mut self.access, buffer);
            if let State::New(buffer) = std::mem::replace(&mut self.state, State::Done) {
                if let Start::Done(n, provenance) = started
                    && n == len
                    && self.access.is_none()
                {
                    return Poll::Ready(BufResult::new(Ok(n), buffer, provenance));
                }
                if let Some(done) = self.go_on(buffer, started, len, rest) {
                    return Poll::Ready(done);
                }
            }
        }
        self.poll_in_flight(cx, own)
    }

    /// Submits the rest. Returns the result if there is none.
    #[inline(never)]
    fn go_on(
        &mut self,
        buffer: B,
        started: Start,
        len: usize,
        rest: impl FnOnce(&Call<'a>, B, Rest) -> Result<Op, BufResult<B>>,
    ) -> Option<BufResult<B>> {
        let done = match started {
            Start::Done(n, provenance) => BufResult::new(Ok(n), buffer, provenance),
            Start::Failed(errno) => {
                BufResult::failed(Error::os(self.call.function.name, errno), buffer)
            }
            Start::Rest(left) => match rest(&self.call, buffer, left) {
                Ok(op) => {
                    let op = match self.deadline {
                        Some(deadline) => op.deadline(deadline),
                        None => op,
                    };
                    self.state = State::InFlight {
                        operation: OpFuture::new(op),
                        len,
                    };
                    return None;
                }
                Err(done) => done,
            },
        };
        self.access = None;
        Some(self.call.finish(done, len))
    }

    #[inline(never)]
    fn poll_in_flight(
        &mut self,
        cx: &mut Context<'_>,
        own: impl FnOnce(Op) -> Option<B>,
    ) -> Poll<BufResult<B>> {
        let State::InFlight { operation, len } = &mut self.state else {
            return Poll::Pending;
        };
        let len = *len;
        let polled = operation.poll(self.call.file.engine, cx);
        if let Some(access) = &mut self.access {
            access.operation = operation.in_progress();
        }
        let Completion {
            result,
            op,
            provenance,
            ..
        } = ready!(polled);
        if let Some(mut access) = self.access.take() {
            access.operation = None;
        }
        self.state = State::Done;
        match own(op) {
            Some(buf) => {
                let done = BufResult::new(result, buf, provenance);
                Poll::Ready(self.call.finish(done, len))
            }
            None => Poll::Pending,
        }
    }
}

impl Call<'_> {
    /// Names the function and the file in the error, also in that of a short transfer.
    fn finish<B>(&self, mut done: BufResult<B>, len: usize) -> BufResult<B> {
        let Function { name, short } = *self.function;
        if let Ok(n) = done.result
            && let Some(short) = short
            && n < len
        {
            done.result = Err(Error::new(name, short));
        }
        if done.result.is_err() {
            let path = self.file.handle.shared_path();
            let name = |error: Error| error.named(name).on(path);
            done.result = done.result.map_err(name);
        }
        done
    }
}
