//! The totals over all files. Files of unknown residency are summed separately, by reason.

use std::collections::BTreeMap;

use super::reason::{Kind, Row};
use crate::unknown::Unknowns;

/// The totals over all files. Sizes are in bytes.
#[derive(Default)]
pub struct Totals {
    pub files: u64,
    pub cached: u64,
    pub evicted: u64,
    pub stayed: u64,
    pub stayed_files: u64,
    pub by_reason: BTreeMap<Kind, u64>,
    pub unknown: Unknowns,
}

impl Totals {
    /// Adds a file.
    pub fn add(&mut self, row: &Row) {
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
