//! The future of a positional write. The first poll writes in the calling thread, if that is known not to
//! block.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::buffer::{IoBuf, downcast_source};
use crate::engine::Engine;
use crate::engine::OpFuture;
use crate::engine::completion::{BufResult, Completion};
use crate::error::{Error, ErrorKind};
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::op::{Op, Write};
use crate::policy::provenance::Provenance;
use crate::{sys, write};

/// The future of [`File::write_at`](crate::File::write_at) and [`File::write_all_at`](crate::File::write_all_at).
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct WriteAt<'a, B> {
    handle: &'a Handle,
    engine: &'a Engine,
    state: Writing<B>,
    offset: u64,
    flags: RwFlags,
    deadline: Option<Instant>,
    all: bool,
    /// The number of bytes, set by the first poll.
    len: usize,
}

#[derive(Debug)]
enum Writing<B> {
    New(B),
    Away(OpFuture),
    Over,
}

impl<B> Unpin for WriteAt<'_, B> {}

impl<'a, B: IoBuf> WriteAt<'a, B> {
    pub(super) fn new(
        handle: &'a Handle,
        engine: &'a Engine,
        buffer: B,
        offset: u64,
        all: bool,
    ) -> WriteAt<'a, B> {
        WriteAt {
            handle,
            engine,
            state: Writing::New(buffer),
            offset,
            flags: RwFlags::empty(),
            deadline: None,
            all,
            len: 0,
        }
    }

    /// Sets the `RWF_*` flags.
    pub fn flags(mut self, flags: RwFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Sets the deadline: see [`Op::deadline`].
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    fn name(&self) -> &'static str {
        if self.all { "write_all_at" } else { "write_at" }
    }

    /// Completes a write. `write_all_at` must have written all bytes.
    fn finish(&self, mut done: BufResult<B>) -> Poll<BufResult<B>> {
        let path = self.handle.shared_path();
        done.result = match done.result {
            Ok(n) if self.all && n < self.len => {
                Err(Error::new("write_all_at", ErrorKind::WriteZero).on(path))
            }
            Ok(n) => Ok(n),
            Err(error) => Err(error.named(self.name()).on(path)),
        };
        Poll::Ready(done)
    }

    /// Creates an operation for the engine from the boxed bytes, `done` of which are written.
    fn rest(&self, buffer: B, done: usize) -> OpFuture {
        let mut write = Write::new(self.handle, Box::new(buffer), self.offset).flags(self.flags);
        if self.all {
            write = write.all();
        }
        write.advance(done);
        let mut op = Op::from(write);
        if let Some(deadline) = self.deadline {
            op = op.deadline(deadline);
        }
        OpFuture::new(op)
    }
}

impl<B: IoBuf> Future for WriteAt<'_, B> {
    type Output = BufResult<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BufResult<B>> {
        let this = self.get_mut();
        let (handle, engine) = (this.handle, this.engine);
        if let Writing::New(_) = &this.state {
            let Writing::New(buffer) = std::mem::replace(&mut this.state, Writing::Over) else {
                return Poll::Pending;
            };
            let bytes = buffer.bytes();
            this.len = bytes.len();
            if let Err(errno) = sys::rw::checked(Some(this.offset), bytes.len()) {
                return this.finish(BufResult::failed(Error::os("write_at", errno), buffer));
            }
            let tries = this.flags.is_empty();
            let done = if tries {
                write::start(engine.policy(), handle, bytes, Some(this.offset))
            } else {
                0
            };
            if done > 0 && done == this.len {
                let provenance = Provenance::default();
                return this.finish(BufResult::new(Ok(done), buffer, provenance));
            }
            match engine.check_process("write_at") {
                Ok(()) => this.state = Writing::Away(this.rest(buffer, done)),
                Err(_) if done > 0 && !this.all => {
                    let provenance = Provenance::default();
                    return this.finish(BufResult::new(Ok(done), buffer, provenance));
                }
                Err(error) => return this.finish(BufResult::failed(error, buffer)),
            }
        }
        let Writing::Away(operation) = &mut this.state else {
            return Poll::Pending;
        };
        match operation.poll(engine, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(completion) => {
                this.state = Writing::Over;
                match own_source(completion) {
                    Some(done) => this.finish(done),
                    None => Poll::Pending,
                }
            }
        }
    }
}

/// The result of a write's operation, with the buffer in its own type. The buffer always has that type.
fn own_source<B: IoBuf>(completion: Completion) -> Option<BufResult<B>> {
    let Completion {
        result,
        op,
        provenance,
        ..
    } = completion;
    let buf = downcast_source(op.into_source()?).ok()?;
    Some(BufResult::new(result, buf, provenance))
}
