//! The device number of a file. stat(2) has another one than the rest of the kernel on some filesystems.

use rustix::fs::StatFs;

/// The types of these filesystems in statfs(2). On btrfs, stat(2) has the device of the subvolume; on
/// overlayfs, it may have one of a layer.
const BTRFS: u64 = 0x9123_683e;
const OVERLAYFS: u64 = 0x794c_7630;

/// Returns true if /proc/PID/maps, /proc/locks and mountinfo have the device number of stat(2) for files of
/// this filesystem.
pub fn is_that_of_stat(filesystem: &StatFs) -> bool {
    // The type of the field differs between processors.
    ![BTRFS, OVERLAYFS].contains(&(filesystem.f_type as u64))
}
