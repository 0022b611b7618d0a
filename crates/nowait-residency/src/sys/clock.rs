//! The clock of a thread.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time of this thread: clock_gettime(2), `CLOCK_THREAD_CPUTIME_ID`. On a busy machine, more time passes while
/// the thread works.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = time.tv_sec.try_into().unwrap_or_default();
    Duration::new(seconds, time.tv_nsec.try_into().unwrap_or_default())
}
