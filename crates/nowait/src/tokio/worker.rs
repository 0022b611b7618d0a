//! Blocking calls, made by a worker of an engine.

use std::io;

use super::answer::Answer;
use super::error::as_io;
use crate::engine::Engine;
use crate::engine::OpFuture;
use crate::handle::Handle;
use crate::op::{Call, Op};

/// Makes a blocking call in a worker of an engine, on a file if one is given. If the future is dropped
/// after the call was submitted, the call is still made.
pub(super) async fn on_worker<T: Send + 'static>(
    engine: &Engine,
    file: Option<&Handle>,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    engine.check_process("call")?;
    let (mut operation, answer) = to_worker(file, call);
    let done = std::future::poll_fn(|cx| operation.poll(engine, cx)).await;
    done.result.map_err(as_io)?;
    answer.take()?
}

/// A call for a worker, and the receiver of its result.
pub(super) fn to_worker<T: Send + 'static>(
    file: Option<&Handle>,
    call: impl FnOnce() -> T + Send + 'static,
) -> (OpFuture, Answer<T>) {
    let (tell, answer) = Answer::new();
    let mut op = Call::new(move || tell.tell(call()));
    if let Some(file) = file {
        op = op.on(file);
    }
    (OpFuture::new(Op::from(op)), answer)
}
