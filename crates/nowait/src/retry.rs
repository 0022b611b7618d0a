//! EINTR: a call that a signal has interrupted is made again, but not for ever.

use crate::sys::Errno;

/// How many times. A signal interrupts a call now and then; what says EINTR so often in a row, a
/// broken filesystem or a sandbox, says nothing else.
pub(crate) const MAX_ATTEMPTS: u32 = 1_000;

/// Makes a call until it says something else than EINTR, or has said that [`MAX_ATTEMPTS`] times.
pub(crate) fn interrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 1..MAX_ATTEMPTS {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
    call()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_call_is_made_again_but_not_for_ever() {
        let mut calls = 0;
        let third = interrupted(|| {
            calls += 1;
            if calls < 3 {
                Err(Errno::INTR)
            } else {
                Ok(calls)
            }
        });
        assert_eq!(third, Ok(3));
        let mut calls = 0;
        let never: Result<(), _> = interrupted(|| {
            calls += 1;
            Err(Errno::INTR)
        });
        assert_eq!((never, calls), (Err(Errno::INTR), MAX_ATTEMPTS));
    }
}
