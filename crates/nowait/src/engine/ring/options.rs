//! How an engine's ring is to be made: io_uring_setup(2), io_uring_register(2).

use std::time::Duration;

use crate::buffer::BufferPool;
use crate::error::{Error, ErrorKind, Result};

/// How a polled engine waits for its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Polled {
    /// It asks the device again and again: `IORING_SETUP_IOPOLL`. The lowest latency, and a whole
    /// processor while anything is in flight.
    Busy,
    /// It sleeps for half of the time that such operations took so far, then asks again and again:
    /// `IORING_SETUP_HYBRID_IOPOLL` (6.13). Elsewhere it is `Busy`, and
    /// [`features`](crate::Engine::features) says why.
    Hybrid,
}

/// What of the options concerns the ring alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct RingOptions {
    pub(crate) polled: Option<Polled>,
    pub(crate) sqpoll: Option<Duration>,
    pub(crate) sqpoll_cpu: Option<u32>,
    pub(crate) workers: Option<[u32; 2]>,
    pub(crate) pools: Vec<BufferPool>,
}

impl RingOptions {
    pub(crate) fn check(&self) -> Result<()> {
        if self.sqpoll_cpu.is_some() && self.sqpoll.is_none() {
            let what = "sqpoll_cpu (without sqpoll there is no thread to be bound)";
            return Err(Error::new(what, ErrorKind::InvalidInput));
        }
        Ok(())
    }

    /// What of it an engine can't do without, by name: these are refused where they can't be had,
    /// since a program that asks for them would be built differently without.
    pub(crate) fn insisted(&self) -> Option<&'static str> {
        match (self.polled, self.sqpoll) {
            (Some(_), _) => Some("polled"),
            (None, Some(_)) => Some("sqpoll"),
            (None, None) => None,
        }
    }
}
