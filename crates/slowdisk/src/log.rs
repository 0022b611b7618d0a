//! What the disk was asked for, and how long it took.

use std::fmt;
use std::time::Duration;

/// What a request does.
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

/// One request, as the disk saw it. Entries are in the order in which requests were answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it arrived, since the disk was made.
    pub time: Duration,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes asked for.
    pub len: u32,
    /// From arrival until it was about to be answered: waiting for a place, seek, latency, stall.
    pub latency: Duration,
    /// Whether it was answered with EIO.
    pub failed: bool,
}

/// Requests answered so far. Flushes and discards are answered at once and not
/// counted; [`SlowDisk::flushes`](crate::SlowDisk::flushes) tells when there was a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads, those that failed included.
    pub reads: u64,
    /// Writes, those that failed included.
    pub writes: u64,
    /// Bytes asked for by reads.
    pub bytes_read: u64,
    /// Bytes carried by writes.
    pub bytes_written: u64,
    /// Requests answered with EIO.
    pub failed: u64,
    /// The most requests that were in service at the same moment.
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
