//! How long a reap waits.

use std::time::{Duration, Instant};

/// How long [`reap`](super::Engine::reap) waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until this many completions are there, or everything in flight is done.
    For(usize),
    /// Until one completion is there, or this much time has passed.
    UpTo(Duration),
    /// Until so many completions are there; once `within` has passed, until one is. For throughput:
    /// a thread that is woken for a batch has more to do at once. With nothing in flight it does
    /// not wait at all.
    ///
    /// A ring does it with one system call where the kernel has `IORING_FEAT_MIN_TIMEOUT` (6.12,
    /// io_uring_enter(2)), and in two waits elsewhere.
    ///
    /// ```
    /// use nowait::engine::{LocalEngine, Wait};
    /// use nowait::op::{Nop, Op};
    /// use std::time::Duration;
    /// let mut engine = LocalEngine::new()?;
    /// engine.submit_batch(&mut (0..3).map(|_| Op::from(Nop)).collect());
    /// let mut done = Vec::new();
    /// let within = Duration::from_millis(10);
    /// engine.reap(&mut done, Wait::Batch { count: 3, within })?;
    /// assert_eq!(done.len(), 3);
    /// # Ok::<(), nowait::Error>(())
    /// ```
    Batch {
        /// How many are waited for at first.
        count: usize,
        /// For how long.
        within: Duration,
    },
}

/// A [`Wait`] that has begun.
#[derive(Debug)]
pub(super) struct Waiting {
    wait: Wait,
    until: Option<Instant>,
}

impl Waiting {
    pub(super) fn begin(wait: Wait) -> Waiting {
        let until = match wait {
            // A time beyond the clock is no limit.
            Wait::UpTo(time) | Wait::Batch { within: time, .. } => Instant::now().checked_add(time),
            Wait::No | Wait::For(_) => None,
        };
        Waiting { wait, until }
    }

    /// How many more completions are wanted, and until when: `None` if it is over. `got` are
    /// there, `coming` in flight.
    pub(super) fn rest(&self, got: usize, coming: usize) -> Option<(usize, Option<Instant>)> {
        let late = || self.until.is_some_and(|until| Instant::now() >= until);
        match self.wait {
            Wait::No => None,
            Wait::For(want) if got >= want || coming == 0 => None,
            Wait::For(want) => Some(((want - got).min(coming), None)),
            Wait::UpTo(_) if got > 0 || late() => None,
            Wait::UpTo(_) => Some((1, self.until)),
            Wait::Batch { count, .. } if got >= count || coming == 0 => None,
            Wait::Batch { .. } if late() => (got == 0).then_some((1, None)),
            Wait::Batch { count, .. } => Some(((count - got).min(coming), self.until)),
        }
    }
}
