//! The outcomes of a submission, and the part of it that runs in the calling thread.

use crate::completion::{Completion, Ticket};
use crate::error::{Error, Result};
use crate::op::Op;
use crate::policy::Policy;
use crate::provenance::Provenance;
use crate::read::{Start, start_op};

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

/// The result of the calling thread's part of an operation.
pub(super) enum Begun {
    /// The operation is done, or failed immediately.
    Done(Result<usize>, Provenance),
    /// The engine does the operation, or the rest of it, which the operation has recorded.
    Rest,
}

/// Runs the calling thread's part of an operation: a read may be served from the page cache. The
/// second value is a readahead to be done as well.
pub(super) fn begin(
    policy: &Policy,
    op: &mut Op,
    batch: bool,
    in_flight: impl Fn() -> usize,
) -> (Begun, Option<Op>) {
    let Some((started, ahead)) = start_op(policy, op, batch, in_flight) else {
        return (Begun::Rest, None);
    };
    let begun = match started {
        Start::Done(n, provenance) => Begun::Done(Ok(n), provenance),
        Start::Failed(errno) => {
            let path = op.body.kind.handle().and_then(|h| h.shared_path());
            Begun::Done(
                Err(Error::os(op.name(), errno).on(path)),
                Provenance::default(),
            )
        }
        Start::Rest(rest) => {
            rest.record(op);
            Begun::Rest
        }
    };
    (begun, ahead)
}
