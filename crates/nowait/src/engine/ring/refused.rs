//! A request that the ring refuses with EACCES, because a sandbox restricts this task (Linux 7.0), or that has
//! failed with this errno.

use super::{Returned, Ring};
use crate::sys::Errno;

impl Ring {
    /// Handles EACCES of an operation. A worker does it if it has not begun: the ring also refuses the request
    /// without a file. `None` if the operation is not done yet.
    #[cold]
    pub(super) fn refused(
        &mut self,
        index: u32,
        result: Result<usize, Errno>,
        out: &mut impl FnMut(Returned),
    ) -> Option<Result<usize, Errno>> {
        let slot = self.slots.get_mut(index);
        let was_probe = std::mem::take(&mut slot.is_probe);
        let is_denied = result == Err(Errno::ACCESS);
        let body = &slot.request.as_ref()?.op.body;
        if body.progress.stopped.is_some() || (was_probe && !is_denied) {
            return Some(Err(Errno::ACCESS));
        }
        if was_probe {
            if let Some(request) = self.slots.remove(index) {
                out(Returned::Worker(request));
            }
            return None;
        }
        slot.is_probe = true;
        if self.prepare(index) {
            return None;
        }
        self.slots.get_mut(index).is_probe = false;
        Some(Err(Errno::ACCESS))
    }
}
