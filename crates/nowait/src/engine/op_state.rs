//! The state of an operation that a future waits for: its completion, once it is there, and the
//! future's waker.

use std::task::{Context, Poll, Waker};

use crate::completion::Completion;
use crate::sync::{Mutex, lock};
use crate::waker::WakerSlot;

/// Where a future waits for its completion.
#[derive(Debug)]
pub(crate) struct Flight {
    landed: Mutex<Option<Completion>>,
    waker: WakerSlot,
}

impl Flight {
    /// A flight whose future is waiting already.
    pub(crate) fn new(waker: &Waker) -> Flight {
        Flight {
            landed: Mutex::new(None),
            waker: WakerSlot::new(waker),
        }
    }

    /// Hands the completion over. Called once.
    pub(crate) fn land(&self, completion: Completion) {
        *lock(&self.landed) = Some(completion);
        self.waker.wake();
    }

    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Completion> {
        if let Some(completion) = self.take() {
            return Poll::Ready(completion);
        }
        self.waker.register(cx.waker());
        // It may have landed before this waker was there to be woken.
        self.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// In a forked child: what had landed before the fork. Takes no lock that the fork may have
    /// caught.
    pub(crate) fn landed_before_fork(&self) -> Option<Completion> {
        self.landed.try_lock().ok()?.take()
    }

    /// The completion, if it is there and the future has not taken it.
    pub(crate) fn into_landed(self) -> Option<Completion> {
        self.take()
    }

    fn take(&self) -> Option<Completion> {
        lock(&self.landed).take()
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

    /// A future whose waker changes waits while another thread hands its completion over.
    fn handed_over() {
        let flight = Arc::new(Flight::new(Waker::noop()));
        let other = flight.clone();
        let lands = shuttle::thread::spawn(move || {
            let error = Error::new("nop", ErrorKind::Cancelled);
            other.land(Completion::failed(error, Op::from(Nop)));
        });
        let first = flight.poll(&Context::from_waker(Waker::noop()));
        if first.is_pending() {
            let done = shuttle::future::block_on(poll_fn(|cx| flight.poll(cx)));
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
