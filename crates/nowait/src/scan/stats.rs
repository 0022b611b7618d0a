//! Counters of a scan.

use crate::task_group;

/// The work that a scan has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Names listed.
    pub listed: u64,
    /// Entries that are complete: nothing more is asked about them.
    pub done: u64,
    /// Complete entries whose metadata could not be read.
    pub failed: u64,
    /// Parts in which the directories were listed: at least one for each.
    pub parts: u64,
    /// Pieces of work (the names of one system call, the metadata of one batch) done by the calling
    /// thread.
    pub by_caller: u64,
    /// Pieces done by workers.
    pub by_workers: u64,
    /// Pieces that waited for the device or for another thread.
    pub waited: u64,
    /// The largest number of workers at the same time.
    pub workers: usize,
}

impl Stats {
    /// The sum for two directories of one walk.
    pub(crate) fn plus(self, other: Stats) -> Stats {
        Stats {
            listed: self.listed + other.listed,
            done: self.done + other.done,
            failed: self.failed + other.failed,
            parts: self.parts + other.parts,
            ..self
        }
    }

    /// The same, with the counters of the threads.
    pub(crate) fn with(self, work: task_group::Stats) -> Stats {
        Stats {
            by_caller: work.by_caller,
            by_workers: work.by_workers,
            waited: work.waited,
            workers: work.workers,
            ..self
        }
    }
}
