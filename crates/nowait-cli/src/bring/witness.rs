//! Whether what was brought stays: files that were finished early, looked at again.

use std::ops::Range;
use std::os::fd::AsFd;

use nowait::Handle;
use nowait::residency::residency;

use crate::tree::Found;

/// So many files are kept in mind, spread evenly over all that were finished.
const MOST: usize = 1024;

/// So much of each is looked at, from where it was first read on.
const EACH: u64 = 16 << 20;

/// So many of the earliest are looked at while the work goes on.
const EARLY: usize = 16;

/// Finished files, and how much of each was cached.
#[derive(Debug, Default)]
pub struct Witnesses {
    kept: Vec<Witness>,
    /// One finished file in so many is kept.
    stride: usize,
    finished: usize,
}

#[derive(Debug)]
struct Witness {
    found: Found,
    range: Range<u64>,
    /// Pages of the range, when it was finished.
    cached: u64,
}

/// What a look at them came to, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    pub files: u64,
    pub then: u64,
    pub now: u64,
}

impl Look {
    /// Whether more has gone than readers of the files would drop by chance.
    pub fn shows_eviction(&self) -> bool {
        self.now < self.then - self.then / 16
    }
}

impl Witnesses {
    /// A file was finished, of which something was read from `first` on.
    pub fn finished(&mut self, found: Found, handle: &Handle, first: u64) {
        self.stride = self.stride.max(1);
        self.finished += 1;
        if !self.finished.is_multiple_of(self.stride) {
            return;
        }
        let range = first..first.saturating_add(EACH);
        if let Some(cached) = count(handle, &range) {
            if self.kept.len() == MOST {
                // Every second one makes room, and from now on half as many come.
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

    /// Looks at the earliest ones.
    pub fn early(&self) -> Look {
        look(&self.kept[..self.kept.len().min(EARLY)])
    }

    /// Looks at all of them.
    pub fn all(&self) -> Look {
        look(&self.kept)
    }
}

/// Files that are gone, or can't be asked about any more, testify to nothing.
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

/// Cached pages, where that is known.
fn count(file: &impl AsFd, range: &Range<u64>) -> Option<u64> {
    let answer = residency(file, range.clone()).ok()?;
    answer.known().map(|residency| residency.cached)
}
