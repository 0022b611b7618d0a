//! A future's operation in the engine.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use super::completion::{Completion, Ticket};
use super::semaphore::Permit;
use crate::error::ErrorKind;
use crate::sys::sync::{Mutex, lock};
use crate::user_code::waker::WakerSlot;
use nowait_residency::windows::InProgress;

/// An engine on which operations can be cancelled.
pub(super) trait Cancel: std::fmt::Debug + Send + Sync {
    /// Asks the engine to stop an operation.
    fn cancel(&self, ticket: Ticket, why: ErrorKind);
}

/// An operation in flight, as held by its future.
///
/// If it is dropped before the completion arrives, a read that may wait without end is stopped, so
/// that its permit is given back. Other operations continue: a write that has begun cannot be
/// undone, and a device completes its operations in bounded time.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(super) op_state: Arc<OpState>,
    /// The engine and the operation, if it is to be stopped with its future.
    pub(super) stop: Option<(Weak<dyn Cancel>, Ticket)>,
}

impl InFlight {
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<Completion> {
        let polled = self.op_state.poll(cx);
        if polled.is_ready() {
            self.stop = None;
        }
        polled
    }

    /// The operation. Its future and the engine hold it.
    pub(crate) fn in_progress(&self) -> InProgress {
        Arc::downgrade(&self.op_state) as InProgress
    }

    /// Returns the completion in a forked child, if it arrived before the fork. It takes no lock
    /// that another thread may have held at the fork.
    pub(crate) fn completed_before_fork(&mut self) -> Option<Completion> {
        self.stop = None;
        self.op_state.completion.try_lock().ok()?.take()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if Arc::strong_count(&self.op_state) > 1 {
            self.op_state.waker.forget();
        }
        if let Some((engine, ticket)) = self.stop.take()
            && let Some(engine) = engine.upgrade()
        {
            engine.cancel(ticket, ErrorKind::Cancelled);
        }
    }
}

/// A permit for an operation of a future, and the state of that operation. Dropping it gives the
/// permit back.
#[derive(Debug)]
pub(crate) struct Reserved<'e> {
    permit: Permit<'e>,
    op_state: Arc<OpState>,
}

impl<'e> Reserved<'e> {
    /// For a permit that was taken. Cloning the waker runs code of the program. If that panics, the
    /// permit is given back.
    pub(super) fn new(permit: Permit<'e>, waker: &Waker) -> Reserved<'e> {
        Reserved {
            permit,
            op_state: Arc::new(OpState::new(waker)),
        }
    }

    /// The state, for an operation that has the permit from now on.
    pub(crate) fn used(self) -> Arc<OpState> {
        self.permit.used();
        self.op_state
    }
}

/// The completion of an operation, for which a future waits.
#[derive(Debug)]
pub(crate) struct OpState {
    completion: Mutex<Option<Completion>>,
    waker: WakerSlot,
}

impl OpState {
    /// Makes the state for a future that is waiting already.
    pub(crate) fn new(waker: &Waker) -> OpState {
        OpState {
            completion: Mutex::new(None),
            waker: WakerSlot::new(waker),
        }
    }

    /// Delivers the completion. It is called once.
    pub(crate) fn complete(&self, completion: Completion) {
        *lock(&self.completion) = Some(completion);
        self.waker.wake();
    }

    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Completion> {
        if let Some(completion) = self.take() {
            return Poll::Ready(completion);
        }
        self.waker.register(cx.waker());
        // The completion may have arrived before this waker was registered.
        self.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// The completion, if it has arrived and the future has not taken it.
    pub(crate) fn take(&self) -> Option<Completion> {
        lock(&self.completion).take()
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use std::future::poll_fn;
    use std::sync::Arc;

    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::op::{Nop, Op};

    const SCHEDULES: usize = 20_000;

    /// A future with a changing waker waits, while another thread delivers the completion.
    fn handed_over() {
        let op_state = Arc::new(OpState::new(Waker::noop()));
        let other = op_state.clone();
        let lands = shuttle::thread::spawn(move || {
            let error = Error::new("nop", ErrorKind::Cancelled);
            other.complete(Completion::failed(error, Op::from(Nop)));
        });
        let first = op_state.poll(&Context::from_waker(Waker::noop()));
        if first.is_pending() {
            let done = shuttle::future::block_on(poll_fn(|cx| op_state.poll(cx)));
            assert!(done.result.is_err());
        }
        lands.join().unwrap();
    }

    #[test]
    fn a_completion_wakes_the_waker_that_was_polled_last() {
        shuttle::check_random(handed_over, SCHEDULES);
        shuttle::check_pct(handed_over, SCHEDULES, 3);
    }
}
