//! The set of ranges that were already requested. A snapshot may list a file twice, or under
//! several names. A range that is listed twice is read once, and counted once in the summary and
//! the budget.

use std::collections::HashMap;
use std::ops::Range;

use rustix::fs::Stat;

use nowait_residency::ranges::Ranges;

/// Ranges of files, by device and inode.
#[derive(Debug, Default)]
pub struct Requested(HashMap<(u64, u64), Known>);

#[derive(Debug, Default)]
struct Known {
    several_names: bool,
    ranges: Ranges,
}

impl Requested {
    /// Adds `ranges`. Returns the parts of them that were not in the set
    /// before.
    pub fn insert(&mut self, file: &Stat, ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
        let known = self.0.entry((file.st_dev, file.st_ino)).or_default();
        known.several_names = file.st_nlink > 1;
        let ranges: Ranges = ranges.into_iter().collect();
        let fresh = ranges.without(&known.ranges);
        ranges.iter().for_each(|range| known.ranges.add(range));
        fresh.iter().collect()
    }

    /// Removes files with one name. A snapshot lists them once, so they are not needed again.
    /// Memory does not grow with the number of such files.
    pub fn forget_single_names(&mut self) {
        self.0.retain(|_, known| known.several_names);
    }
}
