//! The future of a positional read. The first poll tries the page cache, and the engine reads the
//! rest.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use super::keep_cache::{Access, Evicts};
use super::transfer::{Call, Function, Parts, Transfer};
use crate::buffer::{IoBufMut, downcast};
use crate::engine::completion::BufResult;
use crate::error::ErrorKind;
use crate::kernel::flags::RwFlags;
use crate::op::{Op, Read};
use crate::read::start::{Rest, Start, start_into};

static READ_AT: Function = Function {
    name: "read_at",
    short: None,
};
static READ_EXACT_AT: Function = Function {
    name: "read_exact_at",
    short: Some(ErrorKind::UnexpectedEof),
};

/// The future of [`File::read_at`](crate::File::read_at) and
/// [`File::read_exact_at`](crate::File::read_exact_at).
///
/// If it is polled after completion, it stays pending.
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct ReadAt<'a, B>(Transfer<'a, B>);

impl<B> Unpin for ReadAt<'_, B> {}

impl<'a, B: IoBufMut> ReadAt<'a, B> {
    pub(super) fn new(file: Parts<'a>, buffer: B, offset: u64, exact: bool) -> ReadAt<'a, B> {
        let function = if exact { &READ_EXACT_AT } else { &READ_AT };
        ReadAt(Transfer::new(file, function, buffer, offset))
    }

    /// Sets the `RWF_*` flags.
    pub fn flags(mut self, flags: RwFlags) -> Self {
        self.0.call.flags = flags;
        self
    }

    /// Sets the deadline: see [`Op::deadline`].
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.0.deadline = Some(deadline);
        self
    }
}

impl<B: IoBufMut> Future for ReadAt<'_, B> {
    type Output = BufResult<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BufResult<B>> {
        let own = |op: Op| downcast(op.into_buffer()?).ok();
        self.get_mut().0.poll(cx, begin, rest, own)
    }
}

#[inline]
fn begin<'a, B: IoBufMut>(
    call: &Call<'a>,
    access: &mut Option<Access<'a>>,
    buffer: &mut B,
) -> (Start, usize) {
    let (file, offset, mut len) = (call.file, call.offset, 0);
    let started = start_into(buffer, |space| {
        len = space.len();
        if let Some(keep) = file.keep_cache {
            *access = keep.read(offset, len, Evicts::Worker);
        }
        let path = file.engine.read_path();
        path.start(file.handle, space, Some(offset), call.flags)
    });
    (started, len)
}

fn rest<B: IoBufMut>(call: &Call<'_>, buffer: B, rest: Rest) -> Result<Op, BufResult<B>> {
    match call.file.engine.check_process(call.function.name) {
        Ok(()) => {
            let read = Read::new(call.file.handle, Box::new(buffer), call.offset);
            Ok(rest.into_op(read.flags(call.flags)))
        }
        Err(error) => Err(BufResult::failed(error, buffer)),
    }
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
