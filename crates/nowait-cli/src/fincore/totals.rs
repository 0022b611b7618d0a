//! The sum over files. What is unknown is summed apart, with its reason.

use nowait::residency::Answer;

use super::row::{Row, bytes};
use crate::unknown::Unknowns;

/// What was counted.
#[derive(Default)]
pub struct Totals {
    pub files: u64,
    pub size: u64,
    pub pages: u64,
    pub cached: u64,
    pub dirty: u64,
    pub writeback: u64,
    /// Files whose dirty pages nobody can count.
    pub dirty_unknown: u64,
    pub unasked: u64,
    pub unknown: Unknowns,
    /// Names of files that had been counted.
    pub other_names: u64,
}

impl Totals {
    /// Counts a file, if it was not counted before.
    pub fn add(&mut self, row: &Row) {
        if !row.counted {
            self.other_names += 1;
            return;
        }
        let size = row.looked.size();
        self.files += 1;
        self.size += size;
        match row.looked.answer {
            Answer::Known { value, .. } => {
                self.pages += value.pages;
                self.cached += value.cached;
                self.dirty += value.dirty.unwrap_or(0);
                self.writeback += value.writeback.unwrap_or(0);
                self.dirty_unknown += u64::from(value.dirty.is_none());
                self.unasked += value.unasked;
            }
            Answer::Unknown(why) => self.unknown.add(why, size),
        }
    }

    /// Memory of all that is known to be cached.
    pub fn cached_bytes(&self) -> u64 {
        bytes(self.cached)
    }
}
