//! A disk that stalls or fails where a test says, and files on it that are not cached.

use std::path::{Path, PathBuf};
use std::time::Duration;

use slowdisk::{Fault, FaultId, Filesystem, SlowDisk, TestMount, extents};

use super::cache::evict;
use super::files::patterned;

pub const PAGE: usize = 4096;
pub const PAGES: u64 = 64;

/// An ext4 filesystem on a disk with faults.
pub struct Rig {
    pub disk: SlowDisk,
    pub mount: TestMount,
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with_latency(Duration::ZERO)
    }

    /// Makes a rig whose disk takes so long for each request.
    pub fn with_latency(latency: Duration) -> Rig {
        let disk = SlowDisk::builder()
            .size(64 << 20)
            .queue(64)
            .latency(latency)
            .build()
            .unwrap();
        let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
        Rig { disk, mount }
    }

    /// Makes a new file of [`PAGES`] patterned pages, not cached. A read of an earlier file of that name
    /// may still be running: it caches no page of the new file.
    pub fn cold(&self, name: &str) -> PathBuf {
        match std::fs::remove_file(self.mount.path().join(name)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => panic!("{name}: {e}"),
            _ => (),
        }
        let path = patterned(self.mount.path(), name, PAGES as usize * PAGE);
        evict(&path);
        path
    }

    /// Stalls or breaks the reads of a file's blocks.
    pub fn fault(&self, path: &Path, fault: fn(std::ops::Range<u64>) -> Fault) -> Vec<FaultId> {
        let file = std::fs::File::open(path).unwrap();
        let ranges = extents(&file).unwrap();
        ranges
            .into_iter()
            .map(|range| self.disk.inject(fault(range).reads_only()))
            .collect()
    }

    /// Ends faults that [`fault`](Rig::fault) began.
    pub fn release(&self, faults: Vec<FaultId>) {
        faults
            .into_iter()
            .for_each(|fault| self.disk.release(fault));
    }
}
