//! Counters of a stream of files.

/// The work that a stream of files has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Files that were read, or failed.
    pub files: u64,
    /// Files that failed.
    pub failed: u64,
    /// Bytes of the contents.
    pub bytes: u64,
    /// Files that were read from the page cache, without waiting for the device.
    pub cached: u64,
    /// The largest number of bytes that were held or reserved at the same time.
    pub max_held: u64,
    /// Batches of files that the calling thread read.
    pub by_caller: u64,
    /// Batches that workers read.
    pub by_workers: u64,
    /// Batches that waited for the device or for another thread.
    pub waited: u64,
    /// The largest number of workers at the same time.
    pub workers: usize,
}
