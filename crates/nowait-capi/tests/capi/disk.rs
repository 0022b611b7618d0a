//! A disk that stalls or fails where a test says, with a filesystem.

use std::ops::Range;
use std::path::{Path, PathBuf};

use slowdisk::{Fault, FaultId, Filesystem, SlowDisk, TestMount, extents};

/// Skips the test if the machine has no such disk.
macro_rules! needs_disk {
    () => {
        slowdisk::require!(slowdisk::available());
        slowdisk::require!(slowdisk::Filesystem::Ext4.available());
    };
}
pub(crate) use needs_disk;

pub struct Disk {
    disk: SlowDisk,
    mount: TestMount,
}

impl Disk {
    pub fn new() -> Disk {
        let disk = SlowDisk::builder().size(64 << 20).queue(64).build();
        let disk = disk.unwrap();
        let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
        Disk { disk, mount }
    }

    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Makes a file, which is not cached.
    pub fn cold(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        evict(&path);
        path
    }

    /// Stalls the reads of a file's blocks.
    pub fn stall(&self, path: &Path) -> Vec<FaultId> {
        let stall = |range| self.disk.inject(Fault::stall(range).reads_only());
        blocks(path).into_iter().map(stall).collect()
    }

    /// Makes the reads of one block of a file fail, which begins `offset` bytes after the file's first block.
    pub fn break_block(&self, path: &Path, offset: u64) -> FaultId {
        let start = blocks(path)[0].start + offset;
        let fault = Fault::eio(start..start + 4096).reads_only();
        self.disk.inject(fault)
    }

    /// Ends faults.
    pub fn release(&self, faults: impl IntoIterator<Item = FaultId>) {
        faults
            .into_iter()
            .for_each(|fault| self.disk.release(fault));
    }
}

/// The positions of a file's blocks on the disk.
fn blocks(path: &Path) -> Vec<Range<u64>> {
    extents(&std::fs::File::open(path).unwrap()).unwrap()
}

/// Drops a file's pages from the page cache.
pub fn evict(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}
