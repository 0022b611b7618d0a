//! The same history of memory for each contender.
//!
//! A virtual machine with free page reporting (a feature of virtio-balloon, Linux 5.7) tells its
//! host which pages are free, two seconds after they were freed. The host takes them back, and the
//! next use of each page waits for the host. A cold read of 2 GiB took 0.8 s or 2.8 s, by what had
//! run before. [`touch`] uses and frees memory, so that a turn finds pages that the host has not
//! taken back.

use nowait_cli::proc::available_memory;

/// Uses this many bytes of memory and frees them again, at most half of the available memory.
///
/// The kernel puts freed pages in front of its free lists, and the next pages that the page cache
/// needs come from there.
pub fn touch(bytes: u64) {
    let most = available_memory().unwrap_or(u64::MAX) / 2;
    let bytes = usize::try_from(bytes.min(most)).unwrap_or(0);
    // Each byte is written, so that each page is backed.
    drop(std::hint::black_box(vec![1u8; bytes]));
}

/// Returns true if a device of this machine reports free pages to a host.
pub fn is_reported() -> bool {
    /// VIRTIO_BALLOON_F_REPORTING.
    const REPORTING: usize = 5;
    let Ok(devices) = std::fs::read_dir("/sys/bus/virtio/drivers/virtio_balloon") else {
        return false;
    };
    devices.flatten().any(|device| {
        // One digit for each feature, feature 0 first.
        let features = std::fs::read(device.path().join("features")).unwrap_or_default();
        features.get(REPORTING) == Some(&b'1')
    })
}
