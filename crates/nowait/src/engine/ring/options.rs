//! The options of an engine's ring: io_uring_setup(2), io_uring_register(2).

use std::time::Duration;

use crate::buffer::BufferPool;

/// The method by which a polled engine waits for its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Polled {
    /// Polls the device continuously: `IORING_SETUP_IOPOLL`. It has the lowest latency, and uses a
    /// whole processor while anything is in flight.
    Busy,
    /// Sleeps for half of the time that such operations took so far, then polls continuously:
    /// `IORING_SETUP_HYBRID_IOPOLL` (6.13). On older kernels it is the same as `Busy`, and
    /// [`support`](crate::Engine::support) gives the reason.
    Hybrid,
}

/// The options that only concern the ring.
#[derive(Clone, Debug, Default)]
pub(crate) struct RingOptions {
    pub(crate) polled: Option<Polled>,
    pub(crate) sqpoll: Option<Duration>,
    pub(crate) workers: Option<[u32; 2]>,
    pub(crate) pools: Vec<BufferPool>,
}

impl RingOptions {
    /// The name of an option that the engine cannot do without. Making the engine fails if it is
    /// not available, because a program that sets the option is written for it.
    pub(crate) fn required(&self) -> Option<&'static str> {
        match (self.polled, self.sqpoll) {
            (Some(_), _) => Some("polled"),
            (None, Some(_)) => Some("sqpoll"),
            (None, None) => None,
        }
    }
}
