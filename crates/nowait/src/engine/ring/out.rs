//! The operations that leave a ring.

use crate::completion::Completion;
use crate::engine::core::Core;
use crate::engine::reply::Reply;
use crate::engine::request::Request;
use crate::error::ErrorKind;

/// What comes out of the ring.
pub(crate) enum Out {
    /// A completion, and where it goes.
    Done(Reply, Completion),
    /// An operation that the ring will not do after all: for a worker.
    Worker(Request),
}

impl Out {
    /// What becomes of an operation whose ring can't be entered any more.
    pub(crate) fn without_ring(core: &Core, request: Request, chained: bool) -> Out {
        if chained || request.op.kind.is_ring_only() {
            let (reply, completion) = request.stop(core, ErrorKind::NeedsRing);
            Out::Done(reply, completion)
        } else {
            Out::Worker(request)
        }
    }
}
