//! The requests that leave a ring.

use crate::engine::request::{Outcome, Request};

/// A request that leaves the ring.
#[derive(Debug)]
pub(crate) enum Out {
    /// The request is done.
    Done(Request, Outcome),
    /// The ring cannot do the request after all. A worker gets it.
    Worker(Request),
}
