//! The summary of a run.

use nowait::engine::LocalEngine;
use nowait::residency::Answer;

use super::job::Sums;
use super::limits::Limits;
use super::sample::Recount;
use crate::unknown::Unknowns;

/// The totals over all files. Bytes are counted in the requested ranges.
#[derive(Debug)]
pub struct Summary {
    /// The number of processed files.
    pub files: u64,
    /// The number of files that changed since the snapshot, and of invalid entries.
    pub skipped: u64,
    /// The number of further names of processed files.
    pub other_names: u64,
    /// Bytes in holes. They are not read.
    pub holes: u64,
    /// The requested bytes without holes.
    pub data: u64,
    /// Bytes that were cached before.
    pub cached_before: u64,
    /// Bytes that were read; in a dry run: that would be read.
    pub read_bytes: u64,
    /// Bytes that were cached when their file was finished.
    pub cached_after: u64,
    /// The files of unknown residency. They were read completely.
    pub unknown: Unknowns,
    /// The number of files that were not read completely because of the budget.
    pub not_read_files: u64,
    /// The missing bytes that were not read because of the budget.
    pub not_read_bytes: u64,
    /// The reason why no more was read.
    pub not_read_reason: Option<String>,
    /// Finished files that were examined again at the end.
    pub sample: Recount,
    /// The time of the run.
    pub seconds: f64,
    /// True if a stop was requested. Sizes cover the part that was processed.
    pub interrupted: bool,
    /// True if nothing was read.
    pub dry_run: bool,
    /// The backend of the engine: `uring` or `threads`.
    pub backend: &'static str,
}

impl Summary {
    /// An empty summary.
    pub(super) fn new(engine: &LocalEngine, limits: &Limits) -> Summary {
        Summary {
            files: 0,
            skipped: 0,
            other_names: 0,
            holes: 0,
            data: 0,
            cached_before: 0,
            read_bytes: 0,
            cached_after: 0,
            unknown: Unknowns::default(),
            not_read_files: 0,
            not_read_bytes: 0,
            not_read_reason: None,
            sample: Recount::default(),
            seconds: 0.0,
            interrupted: false,
            dry_run: limits.dry_run,
            backend: engine.backend().name(),
        }
    }

    /// Adds one file, with the number of its bytes that are cached now.
    pub(super) fn add(&mut self, sums: &Sums, cached: Answer<u64>) {
        let add = |sum: &mut u64, bytes| *sum = sum.saturating_add(bytes);
        self.files += 1;
        add(&mut self.holes, sums.holes);
        add(&mut self.data, sums.data);
        add(&mut self.read_bytes, sums.read_bytes);
        match cached {
            Answer::Known { value, .. } => {
                add(&mut self.cached_before, sums.data - sums.missing);
                add(&mut self.cached_after, value);
            }
            Answer::Unknown(why) => self.unknown.add(why, sums.data),
        }
        self.not_read_files += u64::from(sums.not_read > 0);
        add(&mut self.not_read_bytes, sums.not_read);
    }

    /// Records the reason why no more data is read. The first reason is kept.
    pub(super) fn stop_reading(&mut self, why: impl FnOnce() -> String) {
        self.not_read_reason.get_or_insert_with(why);
    }

    /// Returns true if no more data is read.
    pub(super) fn is_full(&self) -> bool {
        self.not_read_reason.is_some()
    }

    /// The bytes that were read per second; 0 in a dry run.
    pub fn rate(&self) -> u64 {
        if self.dry_run || self.seconds == 0.0 {
            0
        } else {
            (self.read_bytes as f64 / self.seconds) as u64
        }
    }
}
