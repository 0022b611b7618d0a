//! A filesystem that is shut down while it is in use, as after a failure of its device.
#![allow(unsafe_code, reason = "ioctl(2)")]

use std::os::fd::AsRawFd;
use std::path::Path;

/// The fate of the log, and of what is in it.
#[derive(Clone, Copy, Debug)]
pub enum Log {
    Written,
    Lost,
}

/// Shuts down the ext4 or xfs that is mounted there: `EXT4_IOC_SHUTDOWN`, `XFS_IOC_GOINGDOWN`.
pub fn shut_down(mount: &Path, log: Log) {
    const SHUTDOWN: libc::c_ulong = 0x8004_587d;
    let how: u32 = match log {
        Log::Written => 1,
        Log::Lost => 2,
    };
    let root = std::fs::File::open(mount).unwrap();
    // SAFETY: the call reads a number, which lives through it.
    let done = unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN as _, &raw const how) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
