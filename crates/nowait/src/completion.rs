//! The result of one operation: what came of it, what it owned, and where its bytes came from.

use crate::error::{Error, Result};
use crate::op::Op;

/// Names one queued operation of one engine, for [`cancel`](crate::Engine::cancel) and to match
/// a completion with its submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// The ticket as a plain number, for a C caller or a log.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// The ticket that [`as_u64`](Ticket::as_u64) was taken from.
    pub fn from_u64(raw: u64) -> Ticket {
        Ticket(raw)
    }
}

/// The result of one operation.
///
/// `T` is what the operation owned and gives back: the buffer for a [`File`](crate::File)'s
/// reads and writes, the whole [`Op`] for an engine's.
#[derive(Debug)]
pub struct Completion<T = Op> {
    /// How many bytes, or the call's own non-negative result (0 for most others).
    pub result: Result<usize>,
    /// What the operation owned, given back whether it succeeded or not.
    pub held: T,
    /// Where the bytes came from and who served them.
    pub provenance: Provenance,
    /// The ticket it was queued under; `None` when it was done at submission.
    pub ticket: Option<Ticket>,
}

impl<T> Completion<T> {
    /// The count and the buffer, or the error (dropping the buffer).
    pub fn into_result(self) -> Result<(usize, T)> {
        self.result.map(|n| (n, self.held))
    }

    pub(crate) fn failed(error: Error, held: T) -> Completion<T> {
        Completion {
            result: Err(error),
            held,
            provenance: Provenance::default(),
            ticket: None,
        }
    }
}

/// Where a read's bytes came from, as far as it is known. The three counts add up to the bytes
/// that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// Bytes that the page cache gave without a wait. An eager read can't tell them from bytes of
    /// a device so fast that the readahead which the try itself started was done before the try
    /// was (kernels since about 6.12); a strict read has asked before.
    pub cached: usize,
    /// Bytes that the device was awaited for: of a single page that was not there, or O_DIRECT.
    pub device: usize,
    /// Bytes of which the kernel did not say.
    pub unknown: usize,
    /// Who made the last system call for it.
    pub served_by: ServedBy,
}

impl Provenance {
    /// Counts `n` more bytes from `origin`.
    pub(crate) fn add(&mut self, n: usize, origin: Origin) {
        match origin {
            Origin::Cache => self.cached += n,
            Origin::Device => self.device += n,
            Origin::Unknown => self.unknown += n,
        }
    }
}

/// Who served an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ServedBy {
    /// The thread that asked.
    #[default]
    Caller,
    /// The io_uring ring.
    Ring,
    /// A worker thread of the engine.
    Worker,
}

/// Where some bytes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Cache,
    Device,
    Unknown,
}
