//! A filesystem on a slow disk whose caches can be emptied without emptying the caches of the machine: it is
//! unmounted and mounted again.
#![allow(
    dead_code,
    reason = "the programs of crate nowait-cli use a part of it"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use slowdisk::{Filesystem, LoopDevice, Mount, SlowDisk};

/// Fields are dropped in this order.
pub struct Cold {
    mount: Option<Mount>,
    pub device: LoopDevice,
    pub disk: SlowDisk,
    filesystem: Filesystem,
    at: tempfile::TempDir,
}

impl Cold {
    /// A fresh filesystem with the files that `fill` made, not cached.
    pub fn new(filesystem: Filesystem, disk: &SlowDisk, fill: impl FnOnce(&Path)) -> Cold {
        let speed = disk.full_speed();
        let device = LoopDevice::on(disk).unwrap();
        let force = if filesystem == Filesystem::Ext4 {
            "-F"
        } else {
            "-f"
        };
        run(Command::new(format!("mkfs.{filesystem}"))
            .args(["-q", force])
            .arg(device.path()));
        let at = tempfile::tempdir().unwrap();
        let mut cold = Cold {
            mount: None,
            device,
            disk: disk.clone(),
            filesystem,
            at,
        };
        cold.mount();
        fill(cold.path());
        cold.chill();
        drop(speed);
        cold
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.at.path()
    }

    /// Empties the caches of this filesystem.
    pub fn chill(&mut self) {
        let speed = self.disk.full_speed();
        self.mount = None;
        run(Command::new("blockdev")
            .arg("--flushbufs")
            .arg(self.device.path()));
        self.mount();
        drop(speed);
    }

    fn mount(&mut self) {
        let name = self.filesystem.name();
        self.mount = Some(Mount::new(self.device.path(), self.at.path(), name, "").unwrap());
    }

    /// The range of the disk that holds the inode of a file, on ext4. The inode must have been written to
    /// the device.
    pub fn inode(&self, file: &Path) -> std::ops::Range<u64> {
        use std::os::unix::fs::MetadataExt;
        let ino = std::fs::symlink_metadata(file).unwrap().ino();
        let said = self.debugfs(&format!("imap <{ino}>"));
        let block = said
            .split("located at block ")
            .nth(1)
            .and_then(|s| s.split(',').next());
        let block: u64 = block
            .unwrap_or_else(|| panic!("{said}"))
            .trim()
            .parse()
            .unwrap();
        let size = self.block_size();
        block * size..(block + 1) * size
    }

    /// The range of the disk that holds a block of a directory, on ext4.
    pub fn block_of(&self, dir: &Path, block: u64) -> std::ops::Range<u64> {
        use std::os::unix::fs::MetadataExt;
        let ino = std::fs::symlink_metadata(dir).unwrap().ino();
        let said = self.debugfs(&format!("bmap <{ino}> {block}"));
        let block: u64 = said.trim().parse().unwrap_or_else(|_| panic!("{said}"));
        let size = self.block_size();
        block * size..(block + 1) * size
    }

    fn block_size(&self) -> u64 {
        rustix::fs::statvfs(self.path()).unwrap().f_bsize
    }

    fn debugfs(&self, command: &str) -> String {
        let mut debugfs = Command::new("/usr/sbin/debugfs");
        let output = debugfs
            .args(["-R", command])
            .arg(self.device.path())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Cold {
    fn drop(&mut self) {
        self.disk.release_all();
    }
}

pub fn run(command: &mut Command) {
    let output: PathBuf = command.get_program().into();
    let done = command
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", output.display()));
    assert!(done.status.success(), "{}: {done:?}", output.display());
}
