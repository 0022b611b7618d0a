//! Checks if the files that were read stay cached. A sample of the finished files is examined again.

use std::ops::Range;
use std::os::fd::AsFd;

use nowait::Handle;
use nowait::residency::residency;

use crate::tree::Found;

/// The maximum number of sampled files. They are spread evenly over all finished files.
const MOST: usize = 1024;

/// The number of bytes of each file that are examined, from the first read byte on.
const EACH: u64 = 16 << 20;

/// The number of the earliest sampled files that are examined during the work.
const EARLY: usize = 16;

/// A sample of the finished files, and how much of each was cached.
#[derive(Debug, Default)]
pub struct Witnesses {
    kept: Vec<Witness>,
    /// One of this many finished files is sampled.
    stride: usize,
    finished: usize,
}

#[derive(Debug)]
struct Witness {
    found: Found,
    range: Range<u64>,
    /// The number of cached pages in the range when the file was finished.
    cached: u64,
}

/// The result of examining sampled files, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    pub files: u64,
    pub then: u64,
    pub now: u64,
}

impl Look {
    /// Returns true if more than a sixteenth of the pages was evicted. Fewer may be dropped by chance.
    pub fn shows_eviction(&self) -> bool {
        self.now < self.then - self.then / 16
    }
}

impl Witnesses {
    /// Adds a finished file whose first read began at byte `first`, if it belongs to the sample.
    pub fn finished(&mut self, found: Found, handle: &Handle, first: u64) {
        self.stride = self.stride.max(1);
        self.finished += 1;
        if !self.finished.is_multiple_of(self.stride) {
            return;
        }
        let range = first..first.saturating_add(EACH);
        if let Some(cached) = count(handle, &range) {
            if self.kept.len() == MOST {
                // Removes every second file, and samples half as many from now on.
                let mut keep = false;
                self.kept.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.stride *= 2;
            }
            self.kept.push(Witness {
                found,
                range,
                cached,
            });
        }
    }

    /// Examines the earliest sampled files.
    pub fn early(&self) -> Look {
        look(&self.kept[..self.kept.len().min(EARLY)])
    }

    /// Examines all sampled files.
    pub fn all(&self) -> Look {
        look(&self.kept)
    }
}

/// Examines files. Files that were removed or cannot be queried are not counted.
fn look(witnesses: &[Witness]) -> Look {
    let mut sum = Look::default();
    for witness in witnesses {
        let now = witness.found.open().ok().and_then(|(file, stat)| {
            let same = stat.st_ino == witness.found.inode;
            same.then(|| count(&file, &witness.range))?
        });
        if let Some(now) = now {
            sum.files += 1;
            sum.then += witness.cached;
            sum.now += now.min(witness.cached);
        }
    }
    sum
}

/// The number of cached pages in a range, if it is known.
fn count(file: &impl AsFd, range: &Range<u64>) -> Option<u64> {
    let answer = residency(file, range.clone()).ok()?;
    answer.known().map(|residency| residency.cached)
}
