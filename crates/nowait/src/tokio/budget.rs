//! The cooperative budget of a task: tokio gives a task 128 units for each poll.
//!
//! tokio defers a task that has used its budget up. If the running task has no units left, tokio's
//! scheduler also moves a task that has just been woken behind all others. Beside a thousand tasks
//! of nothing but hits, a task whose timer or socket is ready then waits for all of them. A task
//! therefore yields while it has units left, by waking itself.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use ::tokio::task::coop::{RestoreOnPending, has_budget_remaining, poll_proceed};

/// A copy in the calling thread of at most this number of bytes takes three units. A task whose calls are all
/// hits yields after 42 of them. A larger copy takes the units of several.
const COPY: usize = 12 << 10;

/// The right of a task to make one call: the units of a copy. Those that are not spent are given back when it is
/// dropped. Units that the call itself takes are given back with them: a wait for a permit of the engine takes
/// one, and the call is pending then.
pub(super) struct Turn {
    // Dropped in this order: each gives back the budget that was there before it was taken.
    third: RestoreOnPending,
    second: RestoreOnPending,
    first: RestoreOnPending,
}

/// Ready if the task may make a call. Otherwise the task yields.
#[inline]
pub(super) fn poll_turn(cx: &mut Context<'_>) -> Poll<Turn> {
    match Turn::take(cx) {
        Some(turn) => Poll::Ready(turn),
        None => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }
}

impl Turn {
    /// Takes the units of a copy, if the task has more than these.
    #[inline]
    fn take(cx: &mut Context<'_>) -> Option<Turn> {
        // Without a unit poll_proceed() would also have tokio wake the task.
        let mut unit = || match has_budget_remaining().then(|| poll_proceed(cx)) {
            Some(Poll::Ready(unit)) => Some(unit),
            _ => None,
        };
        let first = unit()?;
        let second = unit()?;
        let third = unit()?;
        has_budget_remaining().then_some(Turn {
            third,
            second,
            first,
        })
    }

    /// Spends one unit, for a call that the calling thread has not served.
    pub(super) fn called(self) {
        self.first.made_progress();
    }

    /// Spends the units of a call that has copied this number of bytes in the calling thread. At least one is
    /// left to the task.
    #[inline]
    pub(super) fn copied(self, bytes: usize, cx: &mut Context<'_>) {
        self.spend();
        for _ in 1..bytes.div_ceil(COPY) {
            match Turn::take(cx) {
                Some(turn) => turn.spend(),
                None => break,
            }
        }
    }

    fn spend(self) {
        for unit in [self.third, self.second, self.first] {
            unit.made_progress();
        }
    }
}

/// Runs a call as soon as the task may make one, and charges for it. `copied` returns the number of
/// bytes that the call has copied in the calling thread, or `None` if the call was not served
/// there.
pub(super) async fn in_turn<T>(
    call: impl Future<Output = T>,
    copied: impl Fn(&T) -> Option<usize>,
) -> T {
    let mut call = pin!(call);
    poll_fn(|cx| {
        let turn = ready!(poll_turn(cx));
        let done = ready!(call.as_mut().poll(cx));
        match copied(&done) {
            Some(bytes) => turn.copied(bytes, cx),
            None => turn.called(),
        }
        Poll::Ready(done)
    })
    .await
}
