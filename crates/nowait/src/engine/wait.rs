//! The condition that ends the wait of a reap.

use std::time::{Duration, Instant};

/// The condition that ends the wait of [`reap`](super::Engine::reap).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Does not wait.
    No,
    /// Waits for this many completions. Returns earlier if no operation is in flight.
    For(usize),
    /// Waits until one completion is there, or this much time has passed.
    UpTo(Duration),
    /// Waits until `count` completions are there, or until one is there after `within` has passed.
    /// This increases throughput, because a thread is woken for several completions. It does not
    /// wait if nothing is in flight.
    ///
    /// A ring needs one system call for it if the kernel has `IORING_FEAT_MIN_TIMEOUT` (Linux 6.12,
    /// io_uring_enter(2)), and two waits otherwise.
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
        /// The number of completions to wait for at first.
        count: usize,
        /// The time after which one completion is enough.
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
            // A time beyond the range of the clock is no limit.
            Wait::UpTo(time) | Wait::Batch { within: time, .. } => Instant::now().checked_add(time),
            Wait::No | Wait::For(_) => None,
        };
        Waiting { wait, until }
    }

    /// The number of completions still wanted and the time limit, or `None` if the wait is over.
    /// `got` completions are there, `coming` operations are in flight.
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
