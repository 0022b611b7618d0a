//! The future of a positional write. The first poll writes in the calling thread, if that is known
//! not to block.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use super::keep_cache::{Access, Evicts};
use super::transfer::{Call, Function, Parts, Transfer};
use crate::buffer::{IoBuf, downcast_source};
use crate::engine::completion::BufResult;
use crate::error::ErrorKind;
use crate::kernel::flags::RwFlags;
use crate::op::{Op, Route, Write};
use crate::policy::provenance::Provenance;
use crate::read::start::{Rest, Start};
use crate::sys::rw::checked;
use crate::write;

static WRITE_AT: Function = Function {
    name: "write_at",
    short: None,
};
static WRITE_ALL_AT: Function = Function {
    name: "write_all_at",
    short: Some(ErrorKind::WriteZero),
};

/// The future of [`File::write_at`](crate::File::write_at) and
/// [`File::write_all_at`](crate::File::write_all_at).
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct WriteAt<'a, B>(Transfer<'a, B>);

impl<B> Unpin for WriteAt<'_, B> {}

impl<'a, B: IoBuf> WriteAt<'a, B> {
    pub(super) fn new(file: Parts<'a>, buffer: B, offset: u64, all: bool) -> WriteAt<'a, B> {
        let function = if all { &WRITE_ALL_AT } else { &WRITE_AT };
        WriteAt(Transfer::new(file, function, buffer, offset))
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

impl<B: IoBuf> Future for WriteAt<'_, B> {
    type Output = BufResult<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BufResult<B>> {
        let own = |op: Op| downcast_source(op.into_source()?).ok();
        self.get_mut().0.poll(cx, begin, rest, own)
    }
}

fn begin<'a, B: IoBuf>(
    call: &Call<'a>,
    access: &mut Option<Access<'a>>,
    buffer: &mut B,
) -> (Start, usize) {
    let (file, bytes) = (call.file, buffer.bytes());
    let len = bytes.len();
    if let Err(errno) = checked(Some(call.offset), len) {
        return (Start::Failed(errno), len);
    }
    let keep = file.keep_cache;
    *access = keep.and_then(|it| it.write(call.offset, len, call.flags, Evicts::Worker));
    let n = match call.flags.is_empty() {
        true => write::start(file.engine.policy(), file.handle, bytes, Some(call.offset)),
        false => 0,
    };
    let started = match n > 0 && n == len {
        true => Start::Done(n, Provenance::default()),
        false => Start::Rest(Rest::of(n, false, Route::Ring)),
    };
    (started, len)
}

fn rest<B: IoBuf>(call: &Call<'_>, buffer: B, rest: Rest) -> Result<Op, BufResult<B>> {
    let writes_all = call.function.short.is_some();
    match call.file.engine.check_process(call.function.name) {
        Ok(()) => {
            let mut op =
                Write::new(call.file.handle, Box::new(buffer), call.offset).flags(call.flags);
            if writes_all {
                op = op.all();
            }
            op.advance(rest.done);
            Ok(op.into())
        }
        Err(_) if rest.done > 0 && !writes_all => {
            let written = Ok(rest.done);
            Err(BufResult::new(written, buffer, Provenance::default()))
        }
        Err(error) => Err(BufResult::failed(error, buffer)),
    }
}
