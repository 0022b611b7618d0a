//! The totals over all files. Files of unknown residency are summed separately, by reason.

use nowait::residency::Answer;
use nowait_page_cache::Unknowns;

use super::row::{Row, bytes};

/// The totals. Sizes are in bytes; cached, dirty and writeback are in pages. A sum that does not
/// fit into 64 bits stays at `u64::MAX`.
#[derive(Default)]
pub struct Totals {
    pub files: u64,
    pub size: u64,
    pub pages: u64,
    pub cached: u64,
    pub dirty: u64,
    pub writeback: u64,
    /// The number of files whose dirty pages are unknown.
    pub dirty_unknown: u64,
    pub unasked: u64,
    pub unknown: Unknowns,
    /// The number of further names of counted files.
    pub other_names: u64,
}

impl Totals {
    /// Adds a file, unless it is another name of a counted file.
    pub fn add(&mut self, row: &Row) {
        if !row.counted {
            self.other_names += 1;
            return;
        }
        let add = |sum: &mut u64, more| *sum = sum.saturating_add(more);
        let size = row.examined.size;
        self.files += 1;
        add(&mut self.size, size);
        match row.examined.answer {
            Answer::Known { value, .. } => {
                add(&mut self.pages, value.pages);
                add(&mut self.cached, value.cached);
                add(&mut self.dirty, value.dirty.unwrap_or(0));
                add(&mut self.writeback, value.writeback.unwrap_or(0));
                self.dirty_unknown += u64::from(value.dirty.is_none());
                add(&mut self.unasked, value.unasked);
            }
            Answer::Unknown(why) => self.unknown.add(why, size),
        }
    }

    /// The cached memory of all files in bytes.
    pub fn cached_bytes(&self) -> u64 {
        bytes(self.cached)
    }
}
