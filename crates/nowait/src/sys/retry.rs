//! Errors that do not last. EINTR: repeats an interrupted call, but not without end.

use crate::sys::Errno;

/// The maximum number of attempts. A signal interrupts a call only occasionally. A broken
/// filesystem or a sandbox may return EINTR each time.
pub(crate) const MAX_ATTEMPTS: u32 = 1_000;

/// Repeats a call until it returns something other than EINTR, at most [`MAX_ATTEMPTS`] times.
pub(crate) fn interrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 1..MAX_ATTEMPTS {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
    call()
}

/// Returns true for errors that other operations end when they give back their descriptors or their
/// memory.
pub(crate) fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
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
