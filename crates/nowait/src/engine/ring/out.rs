//! The operations that leave a ring.

use crate::completion::Completion;
use crate::engine::reply::Reply;
use crate::engine::request::Request;

/// An operation that leaves the ring.
pub(crate) enum Out {
    /// A completion and its destination.
    Done(Reply, Completion),
    /// An operation that the ring cannot do after all. A worker gets it.
    Worker(Request),
}
