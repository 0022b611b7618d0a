//! The future of a positional read. The first poll tries the page cache, and the engine reads the rest.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::buffer::{IoBufMut, downcast};
use crate::engine::Engine;
use crate::engine::OpFuture;
use crate::engine::completion::{BufResult, Completion};
use crate::error::{Error, ErrorKind};
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::op::{Op, Read};
use crate::read::start::start_into;
use crate::read::{Rest, Start};

/// The future of [`File::read_at`](crate::File::read_at) and [`File::read_exact_at`](crate::File::read_exact_at).
///
/// If it is polled after completion, it stays pending.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct ReadAt<'a, B> {
    handle: &'a Handle,
    engine: &'a Engine,
    state: Reading<B>,
    offset: u64,
    flags: RwFlags,
    deadline: Option<Instant>,
    exact: bool,
    /// The buffer's capacity, set by the first poll.
    len: usize,
}

#[derive(Debug)]
enum Reading<B> {
    New(B),
    Away(OpFuture),
    Over,
}

impl<B> Unpin for ReadAt<'_, B> {}

impl<'a, B: IoBufMut> ReadAt<'a, B> {
    pub(super) fn new(
        handle: &'a Handle,
        engine: &'a Engine,
        buffer: B,
        offset: u64,
        exact: bool,
    ) -> ReadAt<'a, B> {
        ReadAt {
            handle,
            engine,
            state: Reading::New(buffer),
            offset,
            flags: RwFlags::empty(),
            deadline: None,
            exact,
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
        if self.exact {
            "read_exact_at"
        } else {
            "read_at"
        }
    }

    /// Completes a read. An exact read must have filled its buffer.
    fn finish(&self, mut done: BufResult<B>) -> Poll<BufResult<B>> {
        let path = self.handle.shared_path();
        done.result = match done.result {
            Ok(n) if self.exact && n < self.len => {
                Err(Error::new("read_exact_at", ErrorKind::UnexpectedEof).on(path))
            }
            Ok(n) => Ok(n),
            Err(error) => Err(error.named(self.name()).on(path)),
        };
        Poll::Ready(done)
    }

    /// Creates an operation for the engine from the boxed buffer.
    fn rest(&self, buffer: B, rest: &Rest) -> OpFuture {
        let mut read = Read::new(self.handle, Box::new(buffer), self.offset).flags(self.flags);
        read.advance(rest.done);
        let mut op = Op::from(read);
        if let Some(deadline) = self.deadline {
            op = op.deadline(deadline);
        }
        rest.record(&mut op);
        OpFuture::new(op)
    }
}

impl<B: IoBufMut> Future for ReadAt<'_, B> {
    type Output = BufResult<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BufResult<B>> {
        let this = self.get_mut();
        let (handle, engine) = (this.handle, this.engine);
        if let Reading::New(buffer) = &mut this.state {
            let started = start_into(buffer, |space| {
                this.len = space.len();
                let (offset, flags) = (this.offset, this.flags);
                let path = engine.read_path();
                path.start(handle, space, Some(offset), flags)
            });
            let Reading::New(buffer) = std::mem::replace(&mut this.state, Reading::Over) else {
                return Poll::Pending;
            };
            engine.read_ahead(started.readahead);
            match started.outcome {
                Start::Done(n, provenance) => {
                    return this.finish(BufResult::new(Ok(n), buffer, provenance));
                }
                Start::Failed(errno) => {
                    return this.finish(BufResult::failed(Error::os("read_at", errno), buffer));
                }
                Start::Rest(rest) => match engine.check_process("read_at") {
                    Ok(()) => this.state = Reading::Away(this.rest(buffer, &rest)),
                    Err(error) => return this.finish(BufResult::failed(error, buffer)),
                },
            }
        }
        let Reading::Away(operation) = &mut this.state else {
            return Poll::Pending;
        };
        match operation.poll(engine, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(completion) => {
                this.state = Reading::Over;
                match own_buffer(completion) {
                    Some(done) => this.finish(done),
                    None => Poll::Pending,
                }
            }
        }
    }
}

/// The result of a read's operation, with the buffer in its own type. The buffer always has that type.
fn own_buffer<B: IoBufMut>(completion: Completion) -> Option<BufResult<B>> {
    let Completion {
        result,
        op,
        provenance,
        ..
    } = completion;
    let buf = downcast(op.into_buffer()?).ok()?;
    Some(BufResult::new(result, buf, provenance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Backend, Options};
    use crate::file::{File, OpenOptions};
    use crate::test_file::TestFile;

    /// A file whose reads are made by workers where nothing can be tried in the caller: under Miri.
    fn file() -> (File, Vec<u8>) {
        let options = Options::new().backend(Backend::Threads).workers(2);
        let engine = options.build().unwrap();
        let mut test = TestFile::new();
        let file = OpenOptions::new()
            .read(true)
            .engine(&engine)
            .blocking_open(&test.path)
            .unwrap();
        (file, std::mem::take(&mut test.bytes))
    }

    #[test]
    fn reads_of_several_threads_bring_the_files_bytes() {
        let (file, bytes) = file();
        let reads = &|at: usize| {
            let read = pollster::block_on(file.read_at(Vec::with_capacity(100), at as u64));
            let n = read.result.unwrap();
            assert_eq!(read.buf[..100], bytes[at..at + 100]);
            assert_eq!(n, read.buf.len());
            let boxed = pollster::block_on(file.read_at(Box::new([0; 9]), at as u64));
            assert_eq!(boxed.buf[..], bytes[at..at + 9]);
        };
        std::thread::scope(|s| {
            for at in [0, 7, 50] {
                s.spawn(move || reads(at));
            }
        });
    }

    #[test]
    fn a_read_may_be_dropped_on_its_way_and_its_file_and_engine_too() {
        let (file, _) = file();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for _ in 0..3 {
            let mut read = file.read_at(vec![0; 100], 0);
            let _ = Pin::new(&mut read).poll(&mut cx);
        }
        drop(file);
    }
}
