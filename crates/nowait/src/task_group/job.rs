//! The work of a task group, and the sums of it.

use std::num::NonZero;
use std::time::Instant;

use once_cell::race::OnceNonZeroUsize;

use crate::error::Result;

/// The work of a group, in pieces.
pub(crate) trait Job: Send + 'static {
    /// A bounded piece of work.
    type Piece: Send;
    /// The result of a piece.
    type Done: Send;
    /// A result that the caller gets.
    type Out: Send;

    /// Returns a piece that can begin now. `slow` is true if workers wait for the device.
    fn pick(&mut self, slow: bool) -> Option<Self::Piece>;

    /// Runs a piece, without any lock. A calling thread leaves the rest undone after
    /// `until`. All threads do so once `over` returns true.
    fn run(piece: Self::Piece, until: Option<Instant>, over: &dyn Fn() -> bool) -> Self::Done;

    /// Returns true if this piece counts for the time that workers sleep (`State::slow`).
    fn is_timed(piece: &Self::Piece) -> bool;

    /// Stores the result of a piece.
    fn finish_piece(&mut self, done: Self::Done);

    /// The approximate number of pieces that could begin now. It is 0 if and only if there are
    /// none.
    fn runnable(&self) -> usize;

    /// Removes and returns the next item that is ready.
    fn pop_ready(&mut self) -> Option<Result<Self::Out>>;

    /// Returns true if an item is ready.
    fn has_ready(&self) -> bool;

    /// Closes the descriptors if nothing remains except returning items.
    fn close(&mut self);

    /// Drops everything that the job holds. Called on cancellation.
    fn clear(&mut self);

    /// The maximum number of workers.
    fn max_workers(&self) -> usize;

    /// Takes the number of workers that the engine grants.
    fn grant(&mut self, _workers: usize) {}

    /// Returns true if a piece that does not wait could begin, and pieces that may wait have. One
    /// more worker is then added, since the others may all wait.
    fn is_held_up(&self) -> bool {
        false
    }
}

/// The work that a group has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    /// Pieces that the calling thread ran.
    pub(crate) by_caller: u64,
    /// Pieces that workers ran.
    pub(crate) by_workers: u64,
    /// Pieces that slept: they waited for the device or for another thread.
    pub(crate) waited: u64,
    /// The largest number of workers at one time.
    pub(crate) workers: usize,
}

static PROCESSORS: OnceNonZeroUsize = OnceNonZeroUsize::new();

/// The number of threads that can run in parallel. It is determined once, because that reads
/// several files of /proc and of cgroups. Blocks.
pub(crate) fn processors() -> usize {
    PROCESSORS
        .get_or_init(|| std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN))
        .get()
}

/// The same, if it was determined before.
pub(super) fn known_processors() -> Option<usize> {
    PROCESSORS.get().map(NonZero::get)
}
