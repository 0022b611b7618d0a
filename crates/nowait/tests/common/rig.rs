//! A disk that stalls or fails where a test says, and files on it that are not cached.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use slowdisk::{Fault, FaultId, Filesystem, SlowDisk, TestMount, extents};

use crate::engines::{evict, patterned};

pub const PAGE: usize = 4096;
pub const PAGES: u64 = 64;

/// ext4 on a disk with faults, with files that are not cached.
pub struct Rig {
    pub disk: SlowDisk,
    pub mount: TestMount,
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with_latency(Duration::ZERO)
    }

    /// On a disk whose requests take so long.
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

    /// A new file of [`PAGES`] patterned pages: reads of an earlier one of that name, given up and not
    /// over, bring nothing of it into the page cache.
    pub fn cold(&self, name: &str) -> PathBuf {
        match std::fs::remove_file(self.mount.path().join(name)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => panic!("{name}: {e}"),
            _ => (),
        }
        let path = patterned(self.mount.path(), name, PAGES as usize * PAGE);
        evict(&path);
        path
    }

    /// Stalls or breaks the reads of one file's own blocks.
    pub fn fault(&self, path: &Path, fault: fn(std::ops::Range<u64>) -> Fault) -> Vec<FaultId> {
        let file = std::fs::File::open(path).unwrap();
        let ranges = extents(&file).unwrap();
        ranges
            .into_iter()
            .map(|range| self.disk.inject(fault(range).reads_only()))
            .collect()
    }

    /// Ends what [`fault`](Rig::fault) began.
    pub fn release(&self, faults: Vec<FaultId>) {
        faults
            .into_iter()
            .for_each(|fault| self.disk.release(fault));
    }

    /// Evicts, without reading in this thread.
    pub fn cold_again(&self, path: &Path) {
        std::thread::scope(|s| {
            s.spawn(|| evict(path));
        });
    }
}
