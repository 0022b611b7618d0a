//! The missing parts of one file: those that are read ahead of a program, and evicted behind it.

use std::ops::Range;

use nowait::residency::{page_map, page_size, residency};
use rustix::fs::Advice;

use crate::file_ref::{FileRef, OpenError};
use crate::prefetch::{Request, Selection, Stamp};

/// The ranges of a file that were not cached when it was examined.
#[derive(Debug)]
pub struct Missing {
    /// The file.
    pub file: FileRef,
    stamp: Stamp,
    device: u64,
    /// In order. No two of them touch.
    ranges: Vec<Range<u64>>,
    /// The number of examined bytes.
    examined: u64,
    /// True if the residency is unknown. All is taken to be missing then.
    pub is_unknown: bool,
}

impl Missing {
    /// Examines a file, or these ranges of it, which must be in order and must not overlap. Bytes
    /// beyond its end are left out.
    ///
    /// # Errors
    /// If the file cannot be opened or examined.
    pub fn of(file: FileRef, ranges: Option<&[Range<u64>]>) -> Result<Missing, OpenError> {
        let (opened, stat) = file.open()?;
        let size = stat.st_size as u64;
        let whole = 0..size;
        let mut missing = Missing {
            file,
            stamp: Stamp::of(&stat),
            device: stat.st_dev,
            ranges: Vec::new(),
            examined: 0,
            is_unknown: false,
        };
        for range in ranges.unwrap_or(std::slice::from_ref(&whole)) {
            let range = range.start.min(size)..range.end.min(size);
            missing.examined += range.end - range.start;
            if range.is_empty() {
                continue;
            }
            match page_map(&opened, range.clone())?.known() {
                None => {
                    missing.is_unknown = true;
                    missing.add(range);
                }
                Some(map) => {
                    for run in map.runs().filter(|run| !run.resident) {
                        let within = run.range.start.max(range.start)..run.range.end.min(range.end);
                        missing.add(within);
                    }
                }
            }
        }
        Ok(missing)
    }

    fn add(&mut self, range: Range<u64>) {
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if range.is_empty() => {}
            _ => self.ranges.push(range),
        }
    }

    /// The number of missing bytes, holes included.
    pub fn bytes(&self) -> u64 {
        self.ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }

    /// The number of examined bytes that were cached.
    pub fn cached_bytes(&self) -> u64 {
        self.examined - self.bytes()
    }

    /// The request that reads the missing ranges; `None` if there are none.
    pub fn request(&self) -> Option<Request> {
        if self.ranges.is_empty() {
            return None;
        }
        // Without a selection the kernel reads ahead, in large folios.
        let is_whole = self.bytes() == self.stamp.size;
        Some(Request {
            file: self.file.clone(),
            selection: (!is_whole).then(|| Selection {
                ranges: self.ranges.clone(),
                stamp: self.stamp,
            }),
        })
    }

    /// The number of missing bytes within `read` that are cached now: 0 if the file was replaced or
    /// cannot be examined. `read` is in order and has no overlaps.
    pub fn cached_now(&self, read: &[Range<u64>]) -> u64 {
        let Some(file) = self.open_again() else {
            return 0;
        };
        let cached = both(&self.ranges, read).map(|range| {
            let known = residency(&file, range.clone()).ok().and_then(|a| a.known());
            let bytes = known.map_or(0, |known| known.cached * page_size());
            bytes.min(range.end - range.start)
        });
        cached.sum()
    }

    /// Evicts the missing bytes within `read`. Bytes that were cached before stay.
    pub fn evict(&self, read: &[Range<u64>]) {
        let Some(file) = self.open_again() else {
            return;
        };
        for range in both(&self.ranges, read) {
            let len = std::num::NonZero::new(range.end - range.start);
            // Pages that stay are no failure of the program.
            let _ = rustix::fs::fadvise(&file, range.start, len, Advice::DontNeed);
        }
    }

    /// Opens the file, if it is still the same.
    fn open_again(&self) -> Option<std::fs::File> {
        let (file, stat) = self.file.open().ok()?;
        ((stat.st_dev, stat.st_ino) == (self.device, self.stamp.inode)).then_some(file)
    }
}

/// The parts that two lists of ranges have in common. Each list is in order and has no overlaps.
fn both(a: &[Range<u64>], b: &[Range<u64>]) -> impl Iterator<Item = Range<u64>> {
    let mut common = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let range = a[i].start.max(b[j].start)..a[i].end.min(b[j].end);
        if !range.is_empty() {
            common.push(range);
        }
        if a[i].end < b[j].end { i += 1 } else { j += 1 }
    }
    common.into_iter()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::btree_set(0..40u64, 0..12).prop_map(|bounds| {
            let bounds: Vec<u64> = bounds.into_iter().collect();
            let pairs = bounds.chunks_exact(2).map(|pair| pair[0]..pair[1]);
            pairs.collect()
        })
    }

    proptest! {
        #[test]
        fn the_common_parts_have_the_bytes_of_both(a in ranges(), b in ranges()) {
            let common: Vec<_> = both(&a, &b).collect();
            let has = |list: &[Range<u64>], byte| list.iter().filter(|r| r.contains(&byte)).count();
            for byte in 0..40 {
                let expected = has(&a, byte).min(has(&b, byte));
                prop_assert_eq!(has(&common, byte), expected, "{}", byte);
            }
        }
    }
}
