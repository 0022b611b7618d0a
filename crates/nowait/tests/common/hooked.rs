//! Wakers whose clone, wake and drop call a test's function.
#![allow(unsafe_code, reason = "a waker whose clone and drop are the test's")]

use std::sync::Arc;
use std::task::{RawWaker, RawWakerVTable, Waker};

/// A call of a waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Clone,
    Wake,
    Drop,
}

type Hook = Arc<dyn Fn(Event) + Send + Sync>;

/// A waker that calls `hook` at each call of it or of a clone.
pub fn hooked(hook: impl Fn(Event) + Send + Sync + 'static) -> Waker {
    let hook: Hook = Arc::new(hook);
    // SAFETY: the table keeps the contract: each of its wakers owns one box, and is `Sync`.
    unsafe { Waker::from_raw(raw(hook)) }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: made by `raw`, and alive as long as the waker is.
        let hook = unsafe { &*data.cast::<Hook>() };
        hook(Event::Clone);
        raw(hook.clone())
    },
    |data| take(data)(Event::Wake),
    // SAFETY: as above.
    |data| unsafe { &*data.cast::<Hook>() }(Event::Wake),
    |data| take(data)(Event::Drop),
);

fn raw(hook: Hook) -> RawWaker {
    RawWaker::new(Box::into_raw(Box::new(hook)).cast(), &TABLE)
}

fn take(data: *const ()) -> Hook {
    // SAFETY: made by `raw`; the waker is gone after this.
    *unsafe { Box::from_raw(data.cast_mut().cast::<Hook>()) }
}
