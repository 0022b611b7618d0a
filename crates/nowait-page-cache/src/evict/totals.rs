//! The totals over all files. Files of unknown residency are summed separately, by reason.

use std::collections::BTreeMap;

use super::reason::{Kind, Row};
use crate::unknown::Unknowns;

/// The totals over all files. Sizes are in bytes.
#[derive(Debug, Default)]
pub struct Totals {
    /// The number of files.
    pub files: u64,
    /// Cached before, in files of known residency.
    pub cached: u64,
    /// Evicted.
    pub evicted: u64,
    /// Cached after.
    pub stayed: u64,
    /// The number of files with pages that stayed.
    pub stayed_files: u64,
    /// The memory that stayed, for each reason.
    pub by_reason: BTreeMap<Kind, u64>,
    /// The files of unknown residency.
    pub unknown: Unknowns,
}

impl Totals {
    /// Adds a file.
    pub(super) fn add(&mut self, row: &Row) {
        self.files += 1;
        match row.counted {
            Err(why) => self.unknown.add(why, row.size),
            Ok(counted) => {
                self.cached += counted.before;
                self.evicted += counted.evicted;
                self.stayed += counted.stayed;
                self.stayed_files += u64::from(counted.stayed > 0);
            }
        }
        for why in &row.why {
            *self.by_reason.entry(why.kind).or_default() += why.bytes;
        }
    }
}
