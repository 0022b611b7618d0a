//! The outcomes of a submission, and the part of it that runs in the calling thread.

use crate::completion::{Completion, Ticket};
use crate::error::{Error, Result};
use crate::op::Op;
use crate::policy::Policy;
use crate::provenance::Provenance;
use crate::read::{Rest, Start, start_op};

/// What became of a submitted operation. Dropping it loses the operation of `Full` and the result
/// of `Done`.
#[derive(Debug)]
#[must_use]
pub enum Submit {
    /// It is done already: the page cache had it, or it failed at once.
    Done(Completion),
    /// It is on its way; its completion will carry this ticket.
    Queued(Ticket),
    /// The engine has as many operations in flight as it may; here it is back. Reap, then try
    /// again.
    Full(Op),
}

/// What the caller's part of an operation came to.
pub(super) enum Begun {
    /// It is done, or failed at once.
    Done(Result<usize>, Provenance),
    /// It is the engine's, or what is left of it is.
    Rest(Option<Rest>),
}

/// The caller's part of an operation: a read may be served from the page cache. With it comes what
/// is to be read ahead besides.
pub(super) fn begin(
    policy: &Policy,
    op: &mut Op,
    batch: bool,
    alone: impl FnOnce() -> bool,
) -> (Begun, Option<Op>) {
    let Some((started, ahead)) = start_op(policy, op, batch, alone) else {
        return (Begun::Rest(None), None);
    };
    let begun = match started {
        Start::Done(n, provenance) => Begun::Done(Ok(n), provenance),
        Start::Failed(errno) => {
            let path = op.kind.handle().and_then(|h| h.shared_path());
            Begun::Done(
                Err(Error::os(op.name(), errno).on(path)),
                Provenance::default(),
            )
        }
        Start::Rest(rest) => Begun::Rest(Some(rest)),
    };
    (begun, ahead)
}
