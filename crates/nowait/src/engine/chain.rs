//! Operations that wait for each other: linked entries, and what becomes of them when the kernel
//! cuts a link that we want to hold.
//!
//! ```text
//!  submit_chain ─► [a ─► b ─► c] ─► kernel ─► a: all of it, b: all of it, c
//!                                        └──► a: a short transfer; b, c: ECANCELED, not begun
//!                                                │                    │
//!                                                └─ goes on, or is    └─ wait until nothing of the
//!                                                   done all the same    chain is at the kernel
//!                     [a ─► b ─► c] or [b ─► c], anew ◄───────────────────┘
//! ```
//!
//! The kernel takes a short read or write for a failure. For us it is one only if the operation says
//! so: what is left of the chain is submitted again. After a real failure it completes as cancelled.

use std::collections::VecDeque;
use std::fmt;

use crate::error::Error;
use crate::op::Op;

/// Operations that are begun one after the other, each when the one before has succeeded: a write
/// and the fsync that covers it, an open, a read and a close ([`OpenDirect`](crate::op::OpenDirect)).
///
/// It is submitted whole or not at all, and every member has a completion of its own. After one that
/// failed, or was stopped, the others complete as [`Cancelled`](crate::ErrorKind::Cancelled). The
/// ring does it by itself (`IOSQE_IO_LINK`, 5.3, io_uring_enter(2)), without anybody being woken
/// between two members.
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
///     // No ring: one has to wait for the write, then submit the fsync.
///     Err(refused) => assert_eq!(refused.error.kind(), nowait::ErrorKind::NeedsRing),
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Chain(pub(super) Vec<Op>);

impl Chain {
    /// A chain without members, which no engine takes.
    pub fn new() -> Chain {
        Chain::default()
    }

    /// With this operation at its end.
    #[must_use]
    pub fn then(mut self, op: impl Into<Op>) -> Chain {
        self.0.push(op.into());
        self
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its operations, in order.
    pub fn into_ops(self) -> Vec<Op> {
        self.0
    }
}

/// A chain that an engine did not take, and why.
#[derive(Debug)]
pub struct RefusedChain {
    /// Why: [`NeedsRing`](crate::ErrorKind::NeedsRing) where there is no ring or it does not do one of
    /// the operations, [`Full`](crate::ErrorKind::Full), [`NeedsDirect`](crate::ErrorKind::NeedsDirect)
    /// on a polled engine, `InvalidInput` for no operation or more than the engine's depth or 4,096.
    pub error: Error,
    /// The chain, as it was.
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

/// What a ring knows of a chain that it holds.
#[derive(Debug, Default)]
pub(super) struct LinkState {
    /// The slots of the members that are not done, in order.
    pub(super) members: VecDeque<u32>,
    /// How many of these are at the kernel.
    pub(super) out: usize,
    /// The first of those: the one that nobody before it can cut off.
    pub(super) first: Option<u32>,
    /// One has failed: what is left is not begun any more.
    pub(super) failed: bool,
}
