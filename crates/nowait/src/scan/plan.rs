//! The decision how a directory is scanned, from its filesystem and its device. The number of workers is
//! adjusted while the scan runs, when it is known if the directory is cached and if the device is slow; see
//! `task_group.rs`.

use super::order::StatOrder;
use crate::kernel::filesystem::Filesystem;
use crate::task_group::processors;

/// The plan of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The maximum number of parts that are listed in parallel. It is 1 if the filesystem's directory
    /// positions cannot be split. A small directory is never split.
    pub parts: usize,
    /// The order in which metadata is asked for.
    pub stat_order: StatOrder,
    /// The maximum number of workers. While nothing waits for the device, only as many help as there are
    /// processors.
    pub workers: usize,
    /// If true, many workers ask about the first entry of each batch, which loads its block, and one worker
    /// asks about the rest. This is used if lookups in one directory block each other.
    pub prefetch_first: bool,
    /// The name of the filesystem that the plan was chosen for, if it is known.
    pub filesystem: Option<&'static str>,
    /// True if the block device reports itself as rotating, as the disks of many virtual machines do.
    /// `None` if there is no block device or it cannot be found.
    pub rotating: Option<bool>,
}

/// The caller's settings, which override the plan.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Insisted {
    pub(super) parts: Option<usize>,
    pub(super) stat_order: Option<StatOrder>,
    pub(super) workers: Option<usize>,
}

/// Parts and workers for a device with a queue. More did not help on a disk with a latency of 1 ms and a
/// queue of 64, and would be taken from other users.
const PARTS: usize = 32;
const WORKERS: usize = 32;

const EXT: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
/// Filesystems without a device: tmpfs, ramfs, proc, sysfs and similar ones.
const NO_DEVICE: [u64; 4] = [0x0102_1994, 0x8584_58f6, 0x9fa0, 0x6265_6572];
/// Lustre: its client prefetches attributes if one thread asks in the directory's order, and stops doing so
/// otherwise.
const LUSTRE: u64 = 0x0bd0_0bd0;

/// Chooses the plan.
pub(super) fn choose(filesystem: &Filesystem, insisted: Insisted) -> Plan {
    let rotating = filesystem.rotating();
    let (parts, stat_order, workers) = match filesystem.magic() {
        EXT | XFS | BTRFS => (PARTS, StatOrder::Inode, WORKERS),
        magic if NO_DEVICE.contains(&magic) => (1, StatOrder::Listed, processors()),
        LUSTRE => (1, StatOrder::Listed, 1),
        // A rotating disk, whatever the filesystem.
        _ if rotating == Some(true) => (1, StatOrder::Inode, WORKERS),
        // A network filesystem, a daemon, a stack of others, or unknown. Inode numbers may have no meaning
        // there, but queries can wait in parallel.
        _ => (1, StatOrder::Listed, WORKERS),
    };
    Plan {
        parts: insisted.parts.unwrap_or(parts).max(1),
        stat_order: insisted.stat_order.unwrap_or(stat_order),
        // On xfs a lookup locks the root block of the directory's index, and a thread that waits for the
        // lock sleeps. With everything in memory, two workers are slower than one.
        prefetch_first: filesystem.magic() == XFS,
        workers: insisted.workers.unwrap_or(workers).max(1),
        filesystem: filesystem.name(),
        rotating,
    }
}
