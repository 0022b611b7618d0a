//! The places of ext4's metadata on the disk, from debugfs(8).

use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::error::{Doing, Error, Result};
use crate::missing;
use crate::test_mount::TestMount;

impl TestMount {
    /// The range of the device that holds the block with the inode of `file`, on ext4. The inode
    /// must have been written to the device, for example by [`remount`](TestMount::remount).
    pub fn inode(&self, file: impl AsRef<Path>) -> Result<Range<u64>> {
        self.block(file.as_ref(), |ino| format!("imap <{ino}>"))
    }

    /// The range of the device that holds the block number `block` of the directory `dir`, on ext4.
    /// The directory must have been written to the device.
    pub fn directory_block(&self, dir: impl AsRef<Path>, block: u64) -> Result<Range<u64>> {
        self.block(dir.as_ref(), |ino| format!("bmap <{ino}> {block}"))
    }

    /// The block that debugfs reports for a request about the inode of `path`.
    fn block(&self, path: &Path, request: impl Fn(u64) -> String) -> Result<Range<u64>> {
        let doing = || format!("looking for {} on the device", path.display());
        let unfit = |cause: String| Error::new(doing(), io::Error::other(cause));
        let debugfs = missing::program("debugfs", "e2fsprogs")?;
        let device = self.device().ok_or_else(|| unfit("no device".into()))?;
        let ino = path.symlink_metadata().doing(doing)?.ino();
        let size = rustix::fs::statvfs(self.path()).doing(doing)?.f_bsize;
        let output = Command::new(debugfs)
            .args(["-R", &request(ino)])
            .arg(device.path())
            .output()
            .doing(doing)?;
        let said = String::from_utf8_lossy(&output.stdout);
        // `imap` reports "Inode 12 is part of block group 0", and in the next line
        // "located at block 97, offset 0x0b00". `bmap` reports the number alone.
        let number = said.split("located at block ").last().unwrap_or_default();
        let number = number.split(',').next().unwrap_or_default().trim();
        match number.parse::<u64>() {
            Ok(block) => Ok(block * size..(block + 1) * size),
            Err(_) => Err(unfit(format!("debugfs: {said}"))),
        }
    }
}
