//! Chains of operations. They are linked submission queue entries. If the kernel cuts a link after
//! a short transfer, the rest of the chain is submitted again.
//!
//! ```text
//!  submit_chain ─► [a ─► b ─► c] ─► kernel ─► a: all of it, b: all of it, c
//!                                        └──► a: a short transfer; b, c: ECANCELED, not begun
//!                                                │                    │
//!                                                └─ continues, or is  └─ wait until nothing of the
//!                                                   done anyway          chain is at the kernel
//!                     [a ─► b ─► c] or [b ─► c], again ◄──────────────────┘
//! ```
//!
//! The kernel treats a short read or write as a failure. An engine does so only if the operation
//! requires it. Otherwise the rest of the chain is submitted again. After a real failure the rest
//! completes as cancelled.

use std::collections::VecDeque;
use std::fmt;

use crate::error::Error;
use crate::op::Op;

/// A sequence of operations, each of which begins when the one before has succeeded. An example is
/// a write and the fsync that covers it.
///
/// A chain is submitted whole or not at all, and each member has a completion of its own. After a
/// member that failed or was stopped, the others complete as
/// [`Cancelled`](crate::ErrorKind::Cancelled). The kernel starts each member itself
/// (`IOSQE_IO_LINK`, Linux 5.3, io_uring_enter(2)), without waking a thread between two members.
///
/// ```
/// use nowait::engine::{Chain, LocalEngine, Wait};
/// use nowait::op::{Fsync, Write};
/// let mut engine = LocalEngine::new()?;
/// let file = nowait::Handle::new(tempfile::tempfile()?)?;
/// let chain = Chain::new()
///     .then(Write::new(&file, Box::new(b"durable".to_vec()), 0).all())
///     .then(Fsync::data(&file));
/// match engine.submit_chain(chain) {
///     Ok(tickets) => {
///         let mut done = Vec::new();
///         engine.reap(&mut done, Wait::For(tickets.len()))?;
///         assert!(done.iter().all(|c| c.result.is_ok()));
///     }
///     // No ring: wait for the write, then submit the fsync.
///     Err(refused) => assert_eq!(refused.error.kind(), nowait::ErrorKind::NeedsRing),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Chain(pub(super) Vec<Op>);

impl Chain {
    /// Makes a chain without members. Engines refuse an empty chain.
    pub fn new() -> Chain {
        Chain::default()
    }

    /// Adds an operation at the end of the chain.
    #[must_use]
    pub fn then(mut self, op: impl Into<Op>) -> Chain {
        self.0.push(op.into());
        self
    }

    /// The number of operations in the chain.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the chain has no operation.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the operations, in order.
    pub fn into_ops(self) -> Vec<Op> {
        self.0
    }
}

/// A chain that an engine refused, and the reason.
#[derive(Debug)]
pub struct RefusedChain {
    /// The reason:
    /// - [`NeedsRing`](crate::ErrorKind::NeedsRing) if there is no ring, or it does not support one
    ///   of the operations;
    /// - [`Full`](crate::ErrorKind::Full) if the engine has no places for all members;
    /// - [`NeedsDirect`](crate::ErrorKind::NeedsDirect) for a file that a polled engine cannot read
    ///   or write;
    /// - `InvalidInput` for an empty chain, one with more members than the engine's depth or 4,096,
    ///   or a member with more than 1024 buffers.
    pub error: Error,
    /// The chain, unchanged.
    pub chain: Chain,
}

impl fmt::Display for RefusedChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for RefusedChain {}

impl From<RefusedChain> for Error {
    fn from(refused: RefusedChain) -> Error {
        refused.error
    }
}

/// The state of a chain that a ring holds.
#[derive(Debug, Default)]
pub(super) struct LinkState {
    /// The slots of the members that are not done, in order.
    pub(super) members: VecDeque<u32>,
    /// The number of these members that are at the kernel.
    pub(super) out: usize,
    /// The first of these. No member before it can cut it off.
    pub(super) first: Option<u32>,
    /// True if a member has failed: the remaining members are not started.
    pub(super) failed: bool,
}
