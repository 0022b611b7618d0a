//! Checks if the files that were read stay cached. A sample of the finished files is examined
//! again.

use std::ops::Range;
use std::os::fd::AsFd;

use nowait::Handle;
use nowait::residency::residency;

use crate::file_ref::FileRef;

/// The maximum number of sampled files. They are spread evenly over all finished files.
const MAX_FILES: usize = 1024;

/// The maximum number of examined bytes of each file, from the first byte that was read.
const MAX_BYTES: u64 = 16 << 20;

/// The number of the earliest sampled files that are examined during the work.
const EARLY_FILES: usize = 16;

/// A sample of the finished files, and how much of each was cached.
#[derive(Debug, Default)]
pub struct Sample {
    files: Vec<SampledFile>,
    /// One of this many finished files is sampled.
    stride: usize,
    finished: usize,
}

#[derive(Debug)]
struct SampledFile {
    file: FileRef,
    range: Range<u64>,
    /// The number of cached pages in the range when the file was finished.
    cached: u64,
}

/// The result of examining sampled files, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recount {
    /// The number of files.
    pub files: u64,
    /// Cached when their files were finished.
    pub then: u64,
    /// Cached now.
    pub now: u64,
}

impl Recount {
    /// Returns true if more than a sixteenth of the pages was evicted. Fewer may be dropped by
    /// chance.
    pub fn shows_eviction(&self) -> bool {
        self.now < self.then - self.then / 16
    }
}

impl Sample {
    /// Adds a finished file whose first read began at byte `first`, if it belongs to the sample.
    pub fn consider(&mut self, file: FileRef, handle: &Handle, first: u64) {
        self.stride = self.stride.max(1);
        self.finished += 1;
        if !self.finished.is_multiple_of(self.stride) {
            return;
        }
        let range = first..first.saturating_add(MAX_BYTES);
        if let Some(cached) = count(handle, &range) {
            if self.files.len() == MAX_FILES {
                // Removes every second file, and samples half as many from now on.
                let mut keep = false;
                self.files.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.stride *= 2;
            }
            self.files.push(SampledFile {
                file,
                range,
                cached,
            });
        }
    }

    /// Examines the earliest sampled files.
    pub fn early(&self) -> Recount {
        recount(&self.files[..self.files.len().min(EARLY_FILES)])
    }

    /// Examines all sampled files.
    pub fn all(&self) -> Recount {
        recount(&self.files)
    }
}

/// Examines files. Files that were removed or cannot be queried are not counted.
fn recount(sample: &[SampledFile]) -> Recount {
    let mut sum = Recount::default();
    for sampled in sample {
        let now = sampled.file.open().ok().and_then(|(file, stat)| {
            let same = stat.st_ino == sampled.file.inode;
            same.then(|| count(&file, &sampled.range))?
        });
        if let Some(now) = now {
            sum.files += 1;
            sum.then += sampled.cached;
            sum.now += now.min(sampled.cached);
        }
    }
    sum
}

/// The number of cached pages in a range, if it is known.
fn count(file: &impl AsFd, range: &Range<u64>) -> Option<u64> {
    let answer = residency(file, range.clone()).ok()?;
    answer.known().map(|residency| residency.cached)
}
