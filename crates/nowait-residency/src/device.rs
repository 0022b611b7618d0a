//! The device number of a file. stat(2) has another one than the rest of the kernel on some filesystems.

use rustix::fs::StatFs;

use crate::magic::{BTRFS, OVERLAYFS};

/// Filesystems where stat(2) has another device. On btrfs, stat(2) has the device of the subvolume; on
/// overlayfs, it may have one of a layer.
const OTHERS: [u64; 2] = [BTRFS, OVERLAYFS];

/// Returns true if /proc/PID/maps, /proc/locks and mountinfo have the device number of stat(2) for files of
/// this filesystem.
pub fn is_that_of_stat(filesystem: &StatFs) -> bool {
    // The type of the field differs between processors.
    !OTHERS.contains(&(filesystem.f_type as u64))
}
