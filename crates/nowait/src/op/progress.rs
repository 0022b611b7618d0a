//! The state of an operation on its way through an engine.

use std::time::Instant;

use crate::error::ErrorKind;
use crate::policy::provenance::Provenance;

/// The state of an operation on its way through an engine.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The part of the engine that does the operation.
    pub(crate) route: Route,
    /// The provenance of the bytes that were read so far.
    pub(crate) provenance: Provenance,
    /// True if the calling thread tried, and the page cache did not have the next byte.
    pub(crate) missed: bool,
    /// The number of remaining bytes that were in the page cache, if they were counted.
    pub(crate) resident: Option<u32>,
    /// The time when it was queued, for one operation in 64.
    pub(crate) queued: Option<Instant>,
    /// The reason for stopping the operation, if it is to be stopped.
    pub(crate) stopped: Option<ErrorKind>,
}

/// The part of an engine that does an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Route {
    /// The ring, if there is one.
    #[default]
    Ring,
    /// A worker, even if there is a ring: a large copy.
    Worker,
}
