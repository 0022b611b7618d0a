//! Cancel requests of a ring: `IORING_OP_ASYNC_CANCEL`. A polled ring does not support them, and
//! its operations end when the device completes them.

use std::time::{Duration, Instant};

use io_uring::opcode;

use super::{CANCEL, Modes, Ring};
use crate::engine::completion::Ticket;
use crate::error::ErrorKind;

/// The first and the longest pause before an operation that did not stop is cancelled again.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_secs(1);

impl Ring {
    /// Asks the kernel to cancel an operation. Its completion tells if that succeeded. Returns true
    /// if the ring holds the operation.
    pub(crate) fn cancel(&mut self, ticket: Ticket, why: ErrorKind) -> bool {
        let found = self.slots.iter_mut().find(|(_, r)| r.ticket == ticket);
        let Some((index, request)) = found else {
            return false;
        };
        request.op.body.progress.stopped = Some(why);
        if !self.modes.contains(Modes::POLLED) {
            self.queue_cancel(index);
            self.cancel_again = Some((Instant::now() + FIRST_PAUSE, FIRST_PAUSE));
        }
        true
    }

    /// Asks the kernel to cancel all operations.
    pub(super) fn cancel_all(&mut self) {
        for (_, request) in self.slots.iter_mut() {
            request.op.body.progress.stopped = Some(ErrorKind::Cancelled);
        }
        self.cancel_stopped();
    }

    /// Repeats the cancel requests of operations that did not stop. Each pause is longer than the
    /// last. A cancel request has no effect on an operation that was just woken (kernels such as
    /// 6.1).
    pub(super) fn repeat_cancels(&mut self) {
        let due = self.cancel_again.take_if(|(at, _)| *at <= Instant::now());
        if let Some((at, pause)) = due.filter(|_| self.cancel_stopped()) {
            let pause = (pause * 2).min(LAST_PAUSE);
            self.cancel_again = Some((at + pause, pause));
        }
    }

    /// Asks the kernel to cancel all operations that are to be stopped. Returns true if there was
    /// one.
    fn cancel_stopped(&mut self) -> bool {
        if self.modes.contains(Modes::POLLED) {
            return false;
        }
        let requests = self.slots.iter_mut();
        let stopped: Vec<u32> = requests
            .filter(|(_, request)| request.op.body.progress.stopped.is_some())
            .map(|(index, _)| index)
            .collect();
        for index in &stopped {
            self.queue_cancel(*index);
        }
        !stopped.is_empty()
    }

    /// Asks the kernel to cancel the operation in a slot.
    fn queue_cancel(&mut self, index: u32) {
        let entry = opcode::AsyncCancel::new(index.into()).build();
        self.submission.queued |= self.enqueue_own(&entry.user_data(CANCEL));
    }
}
