//! A request that the ring refuses with EACCES, because a sandbox restricts this task (Linux 7.0), or that has
//! failed with this errno.

use std::ops::ControlFlow;

use super::{Returned, Ring};
use crate::sys::Errno;

impl Ring {
    /// Handles EACCES of an operation. A worker does it if it has not begun: the ring also refuses the request
    /// without a file. Continues with the result of the operation, if it is known.
    #[cold]
    pub(super) fn refused(
        &mut self,
        index: u32,
        result: Result<usize, Errno>,
    ) -> ControlFlow<Option<Returned>, Result<usize, Errno>> {
        let slot = self.slots.get_mut(index);
        let was_probe = std::mem::take(&mut slot.is_probe);
        let is_denied = result == Err(Errno::ACCESS);
        let Some(request) = &slot.request else {
            return ControlFlow::Break(None);
        };
        let is_stopped = request.op.body.progress.stopped.is_some();
        if is_stopped || (was_probe && !is_denied) {
            return ControlFlow::Continue(Err(Errno::ACCESS));
        }
        if was_probe {
            return ControlFlow::Break(self.slots.remove(index).map(Returned::Worker));
        }
        slot.is_probe = true;
        if self.prepare(index) {
            return ControlFlow::Break(None);
        }
        self.slots.get_mut(index).is_probe = false;
        ControlFlow::Continue(Err(Errno::ACCESS))
    }
}
