//! Counters of a store's reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nowait::Provenance;

/// The reads of a store since it was made, and its open files.
///
/// The numbers are those of the store and its clones. They are read one after another while other
/// threads may change them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Reads whose bytes were all in the page cache.
    pub hits: u64,
    /// All other reads.
    pub misses: u64,
    /// Bytes that were read from the page cache.
    pub bytes_cached: u64,
    /// Those of `bytes_cached` that were borrowed from a mapping, and not copied.
    pub bytes_borrowed: u64,
    /// Bytes that were read from the device.
    pub bytes_device: u64,
    /// Bytes of which it is not known where they were; see [`nowait::Provenance::unknown`].
    pub bytes_unknown: u64,
    /// Files that were opened to be read.
    pub opened: u64,
    /// Descriptors that the store keeps open now for further reads.
    pub open_descriptors: usize,
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    bytes_cached: AtomicU64,
    bytes_borrowed: AtomicU64,
    bytes_device: AtomicU64,
    bytes_unknown: AtomicU64,
    opened: AtomicU64,
}

impl Counters {
    /// Counts an opened file.
    pub(crate) fn open(&self) {
        self.opened.fetch_add(1, Relaxed);
    }

    /// The number of files that were opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Relaxed)
    }

    /// Counts a read whose bytes were borrowed.
    pub(crate) fn borrow(&self, bytes: usize) {
        self.hits.fetch_add(1, Relaxed);
        self.bytes_cached.fetch_add(bytes as u64, Relaxed);
        self.bytes_borrowed.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a read. Returns true if all bytes were in the page cache.
    pub(crate) fn read(&self, provenance: Provenance) -> bool {
        let add = |counter: &AtomicU64, n: usize| match n {
            0 => {}
            n => drop(counter.fetch_add(n as u64, Relaxed)),
        };
        let missed = provenance.device != 0 || provenance.unknown != 0;
        add(if missed { &self.misses } else { &self.hits }, 1);
        add(&self.bytes_cached, provenance.cached);
        add(&self.bytes_device, provenance.device);
        add(&self.bytes_unknown, provenance.unknown);
        !missed
    }

    /// Counts a read of `n` bytes of a file that the worker that has opened it has read to its end. All of the file has one
    /// origin.
    pub(crate) fn read_at_open(&self, n: usize, whole: Provenance) {
        let mut part = Provenance::default();
        let count = match whole {
            Provenance { unknown: 1.., .. } => &mut part.unknown,
            Provenance { device: 1.., .. } => &mut part.device,
            _ => &mut part.cached,
        };
        *count = n;
        self.read(part);
    }

    pub(crate) fn stats(&self, open_descriptors: usize) -> Stats {
        Stats {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            bytes_cached: self.bytes_cached.load(Relaxed),
            bytes_borrowed: self.bytes_borrowed.load(Relaxed),
            bytes_device: self.bytes_device.load(Relaxed),
            bytes_unknown: self.bytes_unknown.load(Relaxed),
            opened: self.opened.load(Relaxed),
            open_descriptors,
        }
    }
}
