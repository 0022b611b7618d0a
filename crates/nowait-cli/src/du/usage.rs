//! The usage of a file, or of a directory and everything below it.

use std::ops::AddAssign;

use crate::file_time::Time;

/// Bytes, and a time. A sum of bytes that does not fit into 64 bits stays at `u64::MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    /// The latest time of the files. `None` if times were not requested, or the filesystem has
    /// none.
    pub time: Option<Time>,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.time = self.time.max(other.time);
    }
}
