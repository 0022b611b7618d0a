//! The result of one operation: what came of it, what it owned, and where its bytes came from.

use crate::error::{Error, Result};
use crate::op::Op;
use crate::provenance::Provenance;

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
