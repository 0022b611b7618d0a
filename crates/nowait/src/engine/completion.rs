//! Results of operations.

use crate::error::{Error, Result};
use crate::op::Op;
use crate::policy::provenance::Provenance;

/// Identifies one queued operation of one engine, for [`cancel`](crate::Engine::cancel) and to
/// match a completion with its submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(
    /// The ticket as a plain number, for a C caller or a log.
    pub u64,
);

impl Ticket {
    /// The ticket of readaheads and evictions, which have no completion. Those of operations begin
    /// at 1.
    pub(crate) const AHEAD: Ticket = Ticket(0);
}

/// The result of one operation on an engine.
///
/// `T` is the operation: [`Op`] for those that [`reap`](crate::Engine::reap) returns, its own type
/// for those that [`run`](crate::Engine::run) returns.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion<T = Op> {
    /// The number of bytes, or the non-negative result of the call (0 for most others).
    pub result: Result<usize>,
    /// The operation, with everything that it owned. It is returned whether it succeeded or failed.
    pub op: T,
    /// The origin of the bytes, and the thread that served them.
    pub provenance: Provenance,
    /// The ticket of the queued operation. `None` if it completed at submission.
    pub ticket: Option<Ticket>,
}

impl Completion {
    /// The completion of an operation that the engine did not queue.
    pub(crate) fn immediate(op: Op, result: Result<usize>, provenance: Provenance) -> Completion {
        Completion {
            result,
            op,
            provenance,
            ticket: None,
        }
    }

    pub(crate) fn failed(error: Error, op: Op) -> Completion {
        Completion::immediate(op, Err(error), Provenance::default())
    }
}

/// The result of a read or write of a [`File`](crate::File), and the buffer.
///
/// The buffer is returned whether the call succeeded or failed.
#[derive(Debug)]
#[non_exhaustive]
pub struct BufResult<B> {
    /// The number of bytes that were read or written.
    pub result: Result<usize>,
    /// The buffer, or the buffers.
    pub buf: B,
    /// The origin of the bytes, and the thread that served them.
    pub provenance: Provenance,
}

impl<B> BufResult<B> {
    /// Returns the count and the buffer, or the error. The buffer is dropped with an error.
    ///
    /// # Errors
    /// The error of the read or write.
    ///
    /// ```
    /// let file = nowait::File::blocking_open("Cargo.toml")?;
    /// let read = pollster::block_on(file.read_at(vec![0; 4], 0));
    /// assert_eq!(read.into_result()?, (4, b"[pac".to_vec()));
    /// # Ok::<(), nowait::Error>(())
    /// ```
    pub fn into_result(self) -> Result<(usize, B)> {
        self.result.map(|n| (n, self.buf))
    }

    pub(crate) fn new(result: Result<usize>, buf: B, provenance: Provenance) -> BufResult<B> {
        BufResult {
            result,
            buf,
            provenance,
        }
    }

    pub(crate) fn failed(error: Error, buf: B) -> BufResult<B> {
        BufResult::new(Err(error), buf, Provenance::default())
    }
}
