//! The cooperative budget of a task: tokio gives a task 128 units for each poll.
//!
//! A task that has used its budget up is deferred by tokio. A thousand tasks of nothing but hits then delay
//! a task whose timer or socket is ready by 60 ms, because the scheduler moves a task that has just been
//! woken behind all others if it finds no budget left. Here a task yields while it has units left, by
//! waking itself.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use ::tokio::task::coop::{has_budget_remaining, poll_proceed};

/// The units that a copy in the calling thread takes. A task whose calls are all hits yields after 31 of
/// them.
const UNITS_OF_A_COPY: usize = 4;

/// A larger copy takes the units of several.
const COPY: usize = 16 << 10;

/// Ready if the task may make a call. Otherwise the task yields.
pub(super) fn poll_turn(cx: &mut Context<'_>) -> Poll<()> {
    if has_more_than(UNITS_OF_A_COPY, cx) {
        return Poll::Ready(());
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Takes one unit, for a call that another thread has served.
pub(super) fn charge_call(cx: &mut Context<'_>) {
    take(1, cx);
}

/// Takes the units of a call that has copied this number of bytes in the calling thread. At least one is
/// left.
pub(super) fn charge_copy(bytes: usize, cx: &mut Context<'_>) {
    for _ in 0..bytes.div_ceil(COPY).max(1) {
        if !has_more_than(UNITS_OF_A_COPY, cx) {
            break;
        }
        take(UNITS_OF_A_COPY, cx);
    }
}

/// Runs a call in its turn, and charges for it. `copied` tells how many bytes the call has copied in the
/// calling thread, or `None` if another thread has served it.
pub(super) async fn in_turn<T>(
    call: impl Future<Output = T>,
    copied: impl Fn(&T) -> Option<usize>,
) -> T {
    let mut call = pin!(call);
    poll_fn(|cx| {
        ready!(poll_turn(cx));
        let done = ready!(call.as_mut().poll(cx));
        match copied(&done) {
            Some(bytes) => charge_copy(bytes, cx),
            None => charge_call(cx),
        }
        Poll::Ready(done)
    })
    .await
}

/// Takes units that the task has.
fn take(units: usize, cx: &mut Context<'_>) {
    for _ in 0..units {
        if let Poll::Ready(unit) = poll_proceed(cx) {
            unit.made_progress();
        }
    }
}

/// True if the task has more than this number of units. A unit is given back when it is dropped.
fn has_more_than(units: usize, cx: &mut Context<'_>) -> bool {
    if units == 0 || !has_budget_remaining() {
        return has_budget_remaining();
    }
    match poll_proceed(cx) {
        Poll::Ready(_unit) => has_more_than(units - 1, cx),
        Poll::Pending => false,
    }
}
