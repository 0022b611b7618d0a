//! The cooperative budget of a task: tokio gives a task 128 units for each poll.
//!
//! tokio defers a task that has used its budget up. If the running task has no units left, tokio's
//! scheduler also moves a task that has just been woken behind all others. Beside a thousand tasks
//! of nothing but hits, a task whose timer or socket is ready then waits for all of them. A task
//! therefore yields while it has units left, by waking itself.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use ::tokio::task::coop::{has_budget_remaining, poll_proceed};

/// The units that a copy in the calling thread takes. A task whose calls are all hits yields after
/// 42 of them.
const UNITS_OF_A_COPY: usize = 3;

/// A larger copy takes the units of several.
const COPY: usize = 12 << 10;

/// Ready if the task may make a call. Otherwise the task yields.
pub(super) fn poll_turn(cx: &mut Context<'_>) -> Poll<()> {
    if has_more_than(UNITS_OF_A_COPY, cx) {
        return Poll::Ready(());
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Takes one unit, for a call that the calling thread has not served.
pub(super) fn charge_call(cx: &mut Context<'_>) {
    take(1, cx);
}

/// Takes the units of a call that has copied this number of bytes in the calling thread. At least
/// one is left.
pub(super) fn charge_copy(bytes: usize, cx: &mut Context<'_>) {
    for _ in 0..bytes.div_ceil(COPY).max(1) {
        if !has_more_than(UNITS_OF_A_COPY, cx) {
            break;
        }
        take(UNITS_OF_A_COPY, cx);
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

/// Returns true if the task has more than this number of units. It takes them, and drops them,
/// which gives them back.
fn has_more_than(units: usize, cx: &mut Context<'_>) -> bool {
    if !has_budget_remaining() {
        return false;
    }
    if units == 0 {
        return true;
    }
    match poll_proceed(cx) {
        Poll::Ready(_unit) => has_more_than(units - 1, cx),
        Poll::Pending => false,
    }
}
