//! Fresh filesystems.

use slowdisk::Filesystem;

/// The filesystems that have a device: a read of data that is not cached has to wait for it.
#[allow(dead_code, reason = "each test binary uses a part of it")]
pub const ON_DISK: [Filesystem; 3] = [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs];

/// A fresh `filesystem`. The test is skipped where it can't be made.
macro_rules! mounted {
    ($filesystem:expr) => {{
        slowdisk::require!($filesystem.available());
        slowdisk::TestMount::new($filesystem).expect("a fresh filesystem")
    }};
}
pub(crate) use mounted;

/// Returns true if statx(2) tells the ID of a mount that is not used again (Linux 6.8).
#[allow(dead_code, reason = "each test binary uses a part of it")]
pub fn mounts_have_unique_ids() -> bool {
    let unique = nowait::StatxMask::from_bits_retain(0x4000);
    let root = nowait::Metadata::statx(rustix::fs::CWD, "/", 0, unique).expect("statx");
    root.has(unique)
}
