//! Calls into code of the program: buffers, wakers, closures, and their destructors.
//!
//! The library's threads serve all operations of an engine. A panic in the program's code may end
//! only its own operation. The threads make such calls only through this module, and never while
//! they hold a lock.

pub(crate) mod paused_clock;
pub(crate) mod waker;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls code of the program. Returns `None` if it panicked.
pub(crate) fn call<T>(code: impl FnOnce() -> T) -> Option<T> {
    // State that the code left incomplete belongs to the program.
    catch_unwind(AssertUnwindSafe(code)).map_err(discard).ok()
}

/// Drops a value of the program. A panic of its destructor is caught here.
pub(crate) fn discard<T>(value: T) {
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(value)));
    if let Err(payload) = dropped {
        // The payload is also a value of the program, and its destructor may panic as well.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
        dropped.unwrap_or_else(std::mem::forget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics when it is dropped, with another `Bomb` as the payload. It has no memory: the last
    /// payload is forgotten.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(Bomb));
        }
    }

    #[test]
    fn a_panic_ends_the_call_and_nothing_else() {
        assert_eq!(call(|| 7), Some(7));
        let panicked: Option<()> = call(|| std::panic::resume_unwind(Box::new(())));
        assert_eq!(panicked, None);
    }

    #[test]
    fn a_payload_may_panic_when_it_is_dropped() {
        discard(Bomb);
        let panicked: Option<()> = call(|| std::panic::resume_unwind(Box::new(Bomb)));
        assert_eq!(panicked, None);
    }
}
