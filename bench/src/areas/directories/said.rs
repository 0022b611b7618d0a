//! The report of one turn's process, which it prints for the bench.

use serde::{Deserialize, Serialize};

/// The report of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// The number of entries.
    pub entries: u64,
    /// The number of entries whose attributes could not be read.
    pub failed: u64,
    /// The peak memory of the process (VmHWM).
    pub peak_kib: Option<u64>,
    /// The most workers at once of a scan or readahead.
    pub workers: Option<usize>,
}
