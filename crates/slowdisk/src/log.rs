//! The log of requests, and counters.

use std::fmt;
use std::time::Duration;

/// The type of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A read.
    Read,
    /// A write.
    Write,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Read => "read",
            Op::Write => "write",
        })
    }
}

/// One request. The log's entries are in the order in which requests were answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The time of its arrival, since the disk was made.
    pub time: Duration,
    /// The type.
    pub op: Op,
    /// The offset of the first byte.
    pub offset: u64,
    /// The requested number of bytes.
    pub len: u32,
    /// The time from its arrival to its answer. It includes the wait for a place, seek, latency and
    /// stall.
    pub latency: Duration,
    /// True if it was answered with EIO.
    pub failed: bool,
}

/// The numbers of answered requests. Flushes and discards are answered immediately and are not
/// counted; [`SlowDisk::flushes`](crate::SlowDisk::flushes) returns the flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The number of reads, including failed ones.
    pub reads: u64,
    /// The number of writes, including failed ones.
    pub writes: u64,
    /// The number of bytes that reads requested.
    pub bytes_read: u64,
    /// The number of bytes in writes.
    pub bytes_written: u64,
    /// The number of requests that were answered with EIO.
    pub failed: u64,
    /// The maximum number of requests that were in service at the same time.
    pub deepest: usize,
}

impl Counters {
    pub(crate) fn count(&mut self, entry: &Entry) {
        match entry.op {
            Op::Read => {
                self.reads += 1;
                self.bytes_read += u64::from(entry.len);
            }
            Op::Write => {
                self.writes += 1;
                self.bytes_written += u64::from(entry.len);
            }
        }
        self.failed += u64::from(entry.failed);
    }
}
