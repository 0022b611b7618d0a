//! The future of a positional write. The first poll writes in the calling thread, if that is known
//! not to block.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use super::keep_cache::Evicts;
use super::transfer::{Parts, Transfer};
use crate::buffer::{IoBuf, downcast_source};
use crate::engine::completion::BufResult;
use crate::error::{Error, ErrorKind};
use crate::kernel::flags::RwFlags;
use crate::op::{Op, Write};
use crate::policy::provenance::Provenance;
use crate::read::start::CallerResult;
use crate::sys::rw::checked;
use crate::write;

/// The future of [`File::write_at`](crate::File::write_at) and
/// [`File::write_all_at`](crate::File::write_all_at).
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct WriteAt<'a, B>(Transfer<'a, B>);

impl<B> Unpin for WriteAt<'_, B> {}

impl<'a, B: IoBuf> WriteAt<'a, B> {
    pub(super) fn new(file: Parts<'a>, buffer: B, offset: u64, all: bool) -> WriteAt<'a, B> {
        let (name, short) = match all {
            true => ("write_all_at", Some(ErrorKind::WriteZero)),
            false => ("write_at", None),
        };
        WriteAt(Transfer::new(file, name, short, buffer, offset))
    }

    /// Sets the `RWF_*` flags.
    pub fn flags(mut self, flags: RwFlags) -> Self {
        self.0.flags = flags;
        self
    }

    /// Sets the deadline: see [`Op::deadline`].
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.0.deadline = Some(deadline);
        self
    }
}

impl<B: IoBuf> Future for WriteAt<'_, B> {
    type Output = BufResult<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BufResult<B>> {
        let own = |op: Op| downcast_source(op.into_source()?).ok();
        self.get_mut().0.poll(cx, begin, own)
    }
}

fn begin<B: IoBuf>(write: &mut Transfer<'_, B>, buffer: B) -> CallerResult<BufResult<B>> {
    let (handle, engine) = (write.file.handle, write.file.engine);
    let bytes = buffer.bytes();
    write.len = bytes.len();
    if let Err(errno) = checked(Some(write.offset), bytes.len()) {
        return CallerResult::Done(BufResult::failed(Error::os(write.name, errno), buffer));
    }
    let keep = write.file.keep_cache;
    write.access =
        keep.and_then(|it| it.write(write.offset, write.len, write.flags, Evicts::Worker));
    let done = match write.flags.is_empty() {
        true => write::start(engine.policy(), handle, bytes, Some(write.offset)),
        false => 0,
    };
    let written =
        |n, buffer| CallerResult::Done(BufResult::new(Ok(n), buffer, Provenance::default()));
    if done > 0 && done == write.len {
        return written(done, buffer);
    }
    match engine.check_process(write.name) {
        Ok(()) => {
            let mut op = Write::new(handle, Box::new(buffer), write.offset).flags(write.flags);
            if write.is_exact() {
                op = op.all();
            }
            op.advance(done);
            CallerResult::Rest(op.into())
        }
        Err(_) if done > 0 && !write.is_exact() => written(done, buffer),
        Err(error) => CallerResult::Done(BufResult::failed(error, buffer)),
    }
}
