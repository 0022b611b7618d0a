//! A mounted filesystem: its type, its device, and the calls that it was found not to support.

mod overlay;
mod table;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use nowait_residency::magic;
use once_cell::race::OnceBox;

use crate::kernel::support::SupportCell;
use crate::sys::stat::FilesystemId;

/// A mounted filesystem: its type, and properties of its device.
#[derive(Debug)]
pub struct Filesystem {
    id: FilesystemId,
    pub(crate) nowait_read: SupportCell,
    pub(crate) nowait_write: SupportCell,
    rotating: OnceBox<Option<bool>>,
    max_readahead: OnceBox<u64>,
    /// The mounts on which files of this filesystem were opened, or asked for their metadata.
    mounts: [KnownMount; 16],
    /// The number of mounts that were added to `mounts`.
    next_mount: AtomicUsize,
}

/// The ID of a mount. No mount has the ID 0, and none has the two highest bits. The highest is set for a mount of overlayfs
/// whose files [open at once](overlay::opens_at_once), the other for a mount on which no file was opened.
#[derive(Debug, Default)]
struct KnownMount(AtomicU64);

impl KnownMount {
    const OVERLAY_AT_ONCE: u64 = 1 << 63;
    const NOT_OPENED: u64 = 1 << 62;

    fn set(&self, id: u64, is_overlay_at_once: bool) {
        let bit = if is_overlay_at_once {
            Self::OVERLAY_AT_ONCE
        } else {
            0
        };
        self.0.store(id | bit, Relaxed);
    }

    fn set_not_opened(&self, id: u64) {
        self.0.store(id | Self::NOT_OPENED, Relaxed);
    }

    fn is_not_opened(&self, id: u64) -> bool {
        self.0.load(Relaxed) == id | Self::NOT_OPENED
    }

    fn is(&self, id: u64) -> bool {
        self.0.load(Relaxed) & !Self::OVERLAY_AT_ONCE == id
    }

    fn is_overlay_at_once(&self, id: u64) -> bool {
        self.0.load(Relaxed) == id | Self::OVERLAY_AT_ONCE
    }
}

/// The least value of [`Filesystem::max_readahead`].
const MIN_READAHEAD: u64 = 32 << 20;

/// Filesystems whose files are in memory.
const IN_MEMORY: [u64; 3] = [magic::TMPFS, magic::RAMFS, magic::HUGETLBFS];

/// Filesystems of the kernel's own files. fstat(2) reports their files as regular, and some of them
/// block without limit.
const IN_KERNEL: [u64; 3] = [magic::PROC, magic::TRACEFS, magic::DEBUGFS];

/// Filesystems without a server: close(2) of a file that was only read has nothing to do, and
/// fstatfs(2) reads memory. Those of servers flush each descriptor that is closed. overlayfs passes both
/// on to a layer.
const LOCAL: [u64; 13] = [
    magic::BCACHEFS,
    magic::BTRFS,
    magic::EROFS,
    magic::EXT4,
    magic::F2FS,
    magic::HUGETLBFS,
    magic::OVERLAYFS,
    magic::PROC,
    magic::RAMFS,
    magic::SQUASHFS,
    magic::TMPFS,
    magic::XFS,
    magic::ZFS,
];

/// Filesystems that may ask a server for the size of a file before they read its cached data.
const SERVED: [u64; 8] = [
    magic::AFS,
    magic::CEPH,
    magic::CIFS,
    magic::FUSE,
    magic::LUSTRE,
    magic::NFS,
    magic::SMB2,
    magic::V9FS,
];

impl Filesystem {
    /// A filesystem without learnt properties.
    fn new(id: FilesystemId) -> Filesystem {
        Filesystem {
            id,
            nowait_read: SupportCell::default(),
            nowait_write: SupportCell::default(),
            rotating: OnceBox::new(),
            max_readahead: OnceBox::new(),
            mounts: Default::default(),
            next_mount: AtomicUsize::new(0),
        }
    }

    /// Returns true if its files are in memory, so that an ordinary read does not wait for a
    /// device.
    pub fn is_memory(&self) -> bool {
        IN_MEMORY.contains(&self.id.magic)
    }

    /// Returns true if it is overlayfs, on which cachestat(2) answers 0 whatever is cached.
    pub(crate) fn is_overlay(&self) -> bool {
        self.id.magic == magic::OVERLAYFS
    }

    /// Returns true if it has no server that close(2) of a file that was only read, or fstatfs(2), would
    /// wait for. overlayfs counts as such.
    pub(crate) fn is_local(&self) -> bool {
        LOCAL.contains(&self.id.magic)
    }

    /// Returns true if it is one of those that may ask a server before they read cached data.
    /// `looks_local` is that of the file, which decides on overlayfs.
    pub(crate) fn is_served(&self, looks_local: bool) -> bool {
        SERVED.contains(&self.id.magic) || (self.is_overlay() && !looks_local)
    }

    /// Returns true if its regular files are the kernel's own. Some of them block without limit.
    pub(crate) fn is_in_kernel(&self) -> bool {
        IN_KERNEL.contains(&self.id.magic)
    }

    /// The device number (`st_dev`) of its files.
    pub fn device(&self) -> u64 {
        self.id.dev
    }

    /// The magic number (`f_type` of statfs(2)).
    pub(crate) fn magic(&self) -> u64 {
        self.id.magic
    }

    /// True if the block device reports itself as rotating. Most virtual disks do, even if the
    /// device is an SSD. `None` if there is no block device or it cannot be found. It is read from
    /// /sys once.
    pub fn rotating(&self) -> Option<bool> {
        *self
            .rotating
            .get_or_init(|| Box::new(is_rotating(self.id.dev)))
    }

    /// The greatest distance in bytes from the end of a read to the end of the readahead that it
    /// starts. It is computed once from the longest readahead of all disks in /sys, because the
    /// disk below an overlayfs is unknown.
    pub(crate) fn max_readahead(&self) -> u64 {
        *self.max_readahead.get_or_init(|| {
            let kib = longest_readahead().unwrap_or(0);
            // A read within one readahead starts the next. posix_fadvise(2) with
            // POSIX_FADV_SEQUENTIAL doubles their length.
            Box::new(kib.saturating_mul(4 << 10).max(MIN_READAHEAD))
        })
    }

    /// The usual name of the filesystem, if its magic number is known.
    pub fn name(&self) -> Option<&'static str> {
        Some(match self.id.magic {
            magic::EXT4 => "ext2/3/4",
            magic::XFS => "xfs",
            magic::BTRFS => "btrfs",
            magic::TMPFS => "tmpfs",
            magic::RAMFS => "ramfs",
            magic::OVERLAYFS => "overlayfs",
            magic::NFS => "nfs",
            magic::FUSE => "fuse",
            magic::F2FS => "f2fs",
            magic::CIFS | magic::SMB2 => "cifs",
            magic::V9FS => "9p",
            magic::PROC => "proc",
            magic::SYSFS => "sysfs",
            magic::SQUASHFS => "squashfs",
            magic::EROFS => "erofs",
            magic::ZFS => "zfs",
            magic::BCACHEFS => "bcachefs",
            _ => return None,
        })
    }
}

fn is_rotating(dev: u64) -> Option<bool> {
    of_queue(dev, "rotational").map(|value| value == "1")
}

/// The longest readahead of a disk or network filesystem, in KiB.
fn longest_readahead() -> Option<u64> {
    let disks = std::fs::read_dir("/sys/class/bdi").ok()?.flatten();
    let settings =
        disks.filter_map(|disk| std::fs::read_to_string(disk.path().join("read_ahead_kb")).ok());
    settings.filter_map(|kib| kib.trim().parse().ok()).max()
}

/// A property of the queue of the block device with number `st_dev`, from /sys. btrfs has its own
/// device numbers; its device is the one it was mounted from.
fn of_queue(dev: u64, name: &str) -> Option<String> {
    let (mut major, mut minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    if major == 0 {
        let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
        let source = source_of(&mounts, &format!("{major}:{minor}"))?;
        let device = rustix::fs::stat(source)
            .ok()
            .filter(|_| source.starts_with(b"/dev/"))?;
        (major, minor) = (
            rustix::fs::major(device.st_rdev),
            rustix::fs::minor(device.st_rdev),
        );
    }
    // A partition uses the queue of its disk.
    ["queue", "../queue"].iter().find_map(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/{name}");
        Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
    })
}

/// The source of the filesystem with this device number, from /proc/PID/mountinfo
/// (proc_pid_mountinfo(5)). Its paths may contain any bytes.
pub(crate) fn source_of<'a>(mounts: &'a [u8], number: &str) -> Option<&'a [u8]> {
    let mut lines = mounts.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        // 32 24 0:28 root point options [tags] - type source options
        let mut words = line.split(|byte| *byte == b' ');
        words.nth(2).filter(|word| *word == number.as_bytes())?;
        words.by_ref().find(|word| *word == b"-")?;
        words.nth(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_a_mount_is_found_beside_any_names() {
        let mounts = b"28 1 0:23 / /a\\040-\\040b\xff rw - tmpfs none rw\n\
                       29 1 0:24 / /mnt rw shared:1 - btrfs /dev/vda1 rw\n";
        assert_eq!(source_of(mounts, "0:24"), Some(&b"/dev/vda1"[..]));
        assert_eq!(source_of(mounts, "0:23"), Some(&b"none"[..]));
        assert_eq!(source_of(mounts, "0:2"), None);
    }
}
