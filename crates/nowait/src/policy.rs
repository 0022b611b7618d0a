//! The settings of an engine that decide which work runs in the calling thread, and the engine's
//! measurements.

pub(crate) mod congestion;
pub mod cost;
pub(crate) mod false_misses;
pub(crate) mod history;
pub(crate) mod mode;
pub(crate) mod provenance;
pub(crate) mod readahead;
pub mod stats;

use once_cell::race::OnceBox;

use congestion::Congestion;
use cost::{Costs, Observed};
use history::NowaitPolicy;
use mode::Mode;
use provenance::Provenance;
use stats::Counters;

/// The largest read or write that is copied in the calling thread, in bytes. A longer copy holds up an
/// event loop for longer than it takes to hand it to a worker.
pub const COPY_LIMIT: usize = 256 << 10;

/// The part of an engine that the read path and the write path use in the calling thread.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) counters: Counters,
    pub(crate) observed: Observed,
    pub(crate) congestion: Congestion,
    pub(crate) mode: Mode,
    pub(crate) nowait: NowaitPolicy,
    /// The largest read or write that is copied in the calling thread, in bytes.
    pub(crate) copy_limit: usize,
    /// True if the engine polls its device, and reads and writes only O_DIRECT files.
    pub(crate) polled: bool,
    /// True if reads are timed, for `observed`.
    pub(crate) is_timed: bool,
}

impl Policy {
    /// Returns true if reads try the page cache unless the history of a file is against it.
    #[inline]
    pub(crate) fn tries(&self) -> bool {
        self.mode == Mode::Eager && !self.polled && self.nowait != NowaitPolicy::Never
    }

    /// The policy for reads of a process without an engine.
    pub(crate) fn without_engine() -> &'static Policy {
        static POLICY: OnceBox<Policy> = OnceBox::new();
        POLICY.get_or_init(|| {
            Box::new(Policy {
                counters: Counters::default(),
                observed: Observed::default(),
                congestion: Congestion::new(),
                mode: Mode::Eager,
                nowait: NowaitPolicy::Adaptive,
                copy_limit: COPY_LIMIT,
                polled: false,
                // It cannot measure a handoff, with which a hit is compared.
                is_timed: false,
            })
        })
    }

    pub(crate) fn costs(&self) -> Costs {
        self.observed.costs()
    }

    /// Records the time from an operation's submission until the program had the completion. Only
    /// hits count for the cost of a handoff, because a miss includes the time of the device.
    pub(crate) fn handed_off(&self, provenance: Provenance, ns: u64) {
        let Provenance {
            cached,
            device,
            unknown,
            ..
        } = provenance;
        if cached > 0 && device + unknown == 0 {
            self.observed.handoff(cached, ns);
        }
    }
}
