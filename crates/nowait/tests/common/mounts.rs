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
