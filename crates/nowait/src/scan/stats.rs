//! Counters of a scan.

use super::progress::Counts;
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
    /// Parts in which the directory was listed.
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
    pub(crate) fn new(counts: Counts, work: task_group::Counts) -> Stats {
        Stats {
            listed: counts.listed,
            done: counts.done,
            failed: counts.failed,
            parts: counts.splits + 1,
            by_caller: work.by_caller,
            by_workers: work.by_workers,
            waited: work.slept,
            workers: work.most_workers,
        }
    }
}
