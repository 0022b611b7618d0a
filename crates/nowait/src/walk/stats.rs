//! Counters of a walk.

use crate::scan;

/// The work that a walk has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Directories that were opened.
    pub directories: u64,
    /// Directories that were found and are not open yet.
    pub waiting: u64,
    /// Directories that were removed before they could be opened.
    pub vanished: u64,
    /// The statistics of a scan, summed over all directories.
    pub scan: scan::Stats,
}
