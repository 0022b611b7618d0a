//! The operations that leave a ring.

use crate::completion::Completion;
use crate::engine::core::Core;
use crate::engine::reply::Reply;
use crate::engine::request::Request;
use crate::error::ErrorKind;

/// An operation that leaves the ring.
pub(crate) enum Out {
    /// A completion and its destination.
    Done(Reply, Completion),
    /// An operation that the ring cannot do after all. A worker gets it.
    Worker(Request),
}

impl Out {
    /// Handles an operation of a ring that can no longer be entered. A worker gets it, unless it is
    /// a member of a chain or has no blocking form.
    pub(crate) fn without_ring(core: &Core, request: Request, chained: bool) -> Out {
        if chained || request.op.kind.is_ring_only() {
            let (reply, completion) = request.stop(core, ErrorKind::NeedsRing);
            Out::Done(reply, completion)
        } else {
            Out::Worker(request)
        }
    }
}
