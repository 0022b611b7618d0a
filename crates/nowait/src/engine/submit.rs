//! The outcomes of a submission, and the part of it that runs in the calling thread.

use super::completion::{Completion, Ticket};
use crate::error::Error;
use crate::op::Op;
use crate::read::path::ReadPath;
use crate::read::start::{CallerResult, Start};

/// The outcome of a submission. Dropping it loses the operation of `Full` and the result of `Done`.
#[derive(Debug)]
#[must_use]
pub enum Submit {
    /// The operation is done: it was served from the page cache, or it failed immediately.
    Done(Completion),
    /// The operation is in flight. Its completion will have this ticket.
    Queued(Ticket),
    /// The engine is full, and returns the operation. Reap, then submit it again.
    Full(Op),
}

/// Runs the calling thread's part of an operation: a read may be served from the page cache.
#[inline(always)]
pub(super) fn begin(
    path: &ReadPath<'_, impl Fn() -> usize, impl Fn(Op)>,
    mut op: Op,
) -> CallerResult<Completion> {
    match path.start_op(&mut op) {
        None => CallerResult::Rest(op),
        Some(Start::Done(n, provenance)) => {
            CallerResult::Done(Completion::immediate(op, Ok(n), provenance))
        }
        Some(Start::Failed(errno)) => {
            let path = op.body.kind.handle().and_then(|h| h.shared_path());
            let error = Error::os(op.name(), errno).on(path);
            CallerResult::Done(Completion::failed(error, op))
        }
        Some(Start::Rest(rest)) => {
            rest.record(&mut op);
            CallerResult::Rest(op)
        }
    }
}
