//! The operations that a ring supports.

use std::sync::Arc;

use crate::op::Kind;

/// The operations that a ring supports. Other threads than the ring's have a clone.
#[derive(Clone, Debug)]
pub(crate) struct SupportedOperations {
    pub(super) ops: Arc<[bool; 256]>,
    pub(super) polled: bool,
}

impl SupportedOperations {
    /// Returns true if the ring supports this operation with the semantics of the system call.
    #[inline(always)]
    pub(crate) fn contains(&self, kind: &Kind) -> bool {
        self.ops[kind.opcode() as usize] && kind.fits_ring() && (!self.polled || kind.is_transfer())
    }
}
