//! Counters of a scan.

use super::progress::{Counts, Progress};
use crate::task_group::{Tally, TaskGroup};

/// What a scan has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Names that were listed.
    pub listed: u64,
    /// Entries that nothing more is asked about.
    pub done: u64,
    /// Of those, entries whose metadata could not be had.
    pub failed: u64,
    /// Parts in which the directory was listed.
    pub parts: u64,
    /// Pieces of it (a system call's worth of names, a batch of questions) that the caller did.
    pub by_caller: u64,
    /// Pieces that workers did.
    pub by_workers: u64,
    /// Pieces during which the device, or another thread, had to be waited for.
    pub waited: u64,
    /// The most workers that helped at the same time.
    pub workers: usize,
}

impl Stats {
    pub(super) fn of(group: &TaskGroup<Progress>) -> Stats {
        let stats = group.look(|progress, tally| Stats::new(progress.counts(), tally));
        stats.unwrap_or_default()
    }

    pub(crate) fn new(counts: Counts, tally: Tally) -> Stats {
        Stats {
            listed: counts.listed,
            done: counts.done,
            failed: counts.failed,
            parts: counts.cuts + 1,
            by_caller: tally.by_caller,
            by_workers: tally.by_workers,
            waited: tally.slept,
            workers: tally.most_workers,
        }
    }
}
