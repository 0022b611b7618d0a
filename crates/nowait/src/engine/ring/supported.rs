//! The operations that a ring carries out.

use std::sync::Arc;

use crate::op::Kind;

/// The operations that a ring carries out. Threads other than its own have a clone.
#[derive(Clone, Debug)]
pub(crate) struct Supported {
    pub(super) ops: Arc<[bool; 256]>,
    pub(super) polled: bool,
}

impl Supported {
    /// Whether this kernel's ring does this operation, and as the system call would.
    pub(crate) fn contains(&self, kind: &Kind) -> bool {
        self.ops[kind.opcode() as usize]
            && kind.fits_ring()
            && (!self.polled || (kind.is_transfer() && !kind.is_ring_only()))
    }
}
