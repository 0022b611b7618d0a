//! What was learnt of one mounted filesystem, and what its kind is known for.

use once_cell::race::OnceBox;

use super::learnt::Learnt;
use crate::sys::stat::FilesystemId;

/// What was learnt of one mounted filesystem.
#[derive(Debug)]
pub struct Filesystem {
    id: FilesystemId,
    pub(crate) nowait_read: Learnt,
    pub(crate) nowait_write: Learnt,
    rotating: OnceBox<Option<bool>>,
}

/// Filesystems whose files live in memory: `f_type` of tmpfs, ramfs and hugetlbfs (statfs(2)).
const IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, HUGETLBFS];
/// hugetlbfs, and the files of memfd_create(2) with `MFD_HUGETLB`.
pub(crate) const HUGETLBFS: u64 = 0x9584_58f6;
/// ext2, ext3 and ext4; xfs; f2fs.
pub(super) const OPEN_AT_ONCE: [u64; 3] = [0xef53, 0x5846_5342, 0xf2f5_2010];
/// overlayfs.
pub(crate) const OVERLAY: u64 = 0x794c_7630;
/// FUSE, virtiofs among them.
pub(crate) const FUSE: u64 = 0x6573_5546;

/// procfs, tracefs and debugfs: their files call themselves regular, and some wait without end.
const IN_KERNEL: [u64; 3] = [0x9fa0, 0x7472_6163, 0x6462_6720];

impl Filesystem {
    /// One of which nothing is known yet.
    pub(super) fn new(id: FilesystemId) -> Filesystem {
        Filesystem {
            id,
            nowait_read: Learnt::default(),
            nowait_write: Learnt::default(),
            rotating: OnceBox::new(),
        }
    }

    /// Whether its files live in memory, so that a plain read of one waits for no device.
    pub fn is_memory(&self) -> bool {
        IN_MEMORY.contains(&self.id.magic)
    }

    /// Whether it is overlayfs, on which cachestat(2) answers 0 whatever is cached.
    pub fn is_overlay(&self) -> bool {
        self.id.magic == OVERLAY
    }

    /// Whether its regular files are the kernel's own, some of which wait without end.
    pub(crate) fn is_in_kernel(&self) -> bool {
        IN_KERNEL.contains(&self.id.magic)
    }

    /// The device number (`st_dev`) of its files.
    pub fn device(&self) -> u64 {
        self.id.dev
    }

    /// Its number in statfs(2).
    pub(crate) fn magic(&self) -> u64 {
        self.id.magic
    }

    /// Whether its block device calls itself rotating. Most disks of virtual machines do, whatever
    /// they are. `None` if it has no block device, or none that can be found. Asked of /sys, once.
    pub fn rotating(&self) -> Option<bool> {
        *self
            .rotating
            .get_or_init(|| Box::new(is_rotating(self.id.dev)))
    }

    /// The filesystem's name as users know it, where its magic number is a known one.
    pub fn name(&self) -> Option<&'static str> {
        Some(match self.id.magic {
            0xef53 => "ext2/3/4",
            0x5846_5342 => "xfs",
            0x9123_683e => "btrfs",
            0x0102_1994 => "tmpfs",
            0x8584_58f6 => "ramfs",
            OVERLAY => "overlayfs",
            0x6969 => "nfs",
            FUSE => "fuse",
            0xf2f5_2010 => "f2fs",
            0xff53_4d42 | 0xfe53_4d42 => "cifs",
            0x0102_1997 => "9p",
            0x9fa0 => "proc",
            0x6265_6572 => "sysfs",
            0x7371_7368 => "squashfs",
            0xe0f5_e1e2 => "erofs",
            0x2fc1_2fc1 => "zfs",
            0xca45_1a4e => "bcachefs",
            _ => return None,
        })
    }

    /// Whether cached reads (`RWF_NOWAIT`) work: `None` until a file was tried.
    pub fn nowait_read(&self) -> Option<bool> {
        self.nowait_read.answer()
    }

    /// Whether buffered writes with `RWF_NOWAIT` work: `None` until one was tried.
    pub fn nowait_write(&self) -> Option<bool> {
        self.nowait_write.answer()
    }
}

/// Asks /sys whether the block device under `st_dev` rotates. btrfs has device numbers of its own;
/// its device is the one that it was mounted from.
fn is_rotating(dev: u64) -> Option<bool> {
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
    // A partition's queue is its disk's.
    ["queue", "../queue"].iter().find_map(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/rotational");
        Some(std::fs::read_to_string(path).ok()?.trim() == "1")
    })
}

/// The source of the filesystem with this device number, of /proc/PID/mountinfo
/// (proc_pid_mountinfo(5)), whose paths are any bytes.
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
