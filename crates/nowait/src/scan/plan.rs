//! The decision how a directory is scanned, from its filesystem and its device. The number of
//! workers is adjusted while the scan runs, when it is known if the directory is cached and if the
//! device is slow; see `task_group.rs`.

use nowait_residency::magic;

use super::order::{Order, StatOrder};
use crate::kernel::filesystem::Filesystem;
use crate::task_group::processors;

/// The plan of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The maximum number of parts that are listed in parallel. It is 1 if the filesystem's
    /// directory positions cannot be split. A small directory is never split.
    pub(super) parts: usize,
    /// The order in which metadata is asked for.
    pub(super) stat_order: StatOrder,
    /// The maximum number of workers. While nothing waits for the device, only as many help as
    /// there are processors.
    pub(crate) workers: usize,
    /// If true, many workers ask about the first entry of each batch, which loads its block, and
    /// one worker asks about the rest. This is used if lookups in one directory block each other.
    pub(super) prefetch_first: bool,
}

/// Parts and workers for a device with a queue. More than 32 parts were not faster on a disk with a
/// latency of 1 ms and a queue of 64. Other tasks of the engine may need the workers.
const PARTS: usize = 32;
const WORKERS: usize = 32;

impl Plan {
    /// Chooses the plan. `names_only` is true if no metadata is asked for, `workers` is the maximum
    /// that the caller has set.
    pub(super) fn new(
        filesystem: &Filesystem,
        order: Order,
        names_only: bool,
        workers: Option<usize>,
    ) -> Plan {
        let (parts, stat_order, most) = match filesystem.magic() {
            magic::EXT4 | magic::XFS | magic::BTRFS => (PARTS, StatOrder::Inode, WORKERS),
            // Filesystems without a device.
            magic::TMPFS | magic::RAMFS | magic::PROC | magic::SYSFS => {
                (1, StatOrder::Listed, processors())
            }
            magic::LUSTRE => (1, StatOrder::Listed, 1),
            // A rotating disk, whatever the filesystem. The disks of many virtual machines report
            // that they rotate.
            _ if filesystem.rotating() == Some(true) => (1, StatOrder::Inode, WORKERS),
            // A network filesystem, a daemon, a stack of others, or unknown. Inode numbers may have
            // no meaning there, but queries can wait in parallel.
            _ => (1, StatOrder::Listed, WORKERS),
        };
        Plan {
            parts,
            stat_order: match order {
                Order::Inode => StatOrder::Inode,
                _ if names_only => StatOrder::Listed,
                _ => stat_order,
            },
            // On xfs a lookup locks the root block of the directory's index, and a thread that
            // waits for the lock sleeps. With everything in memory, two workers are slower than
            // one.
            prefetch_first: filesystem.magic() == magic::XFS,
            workers: workers.unwrap_or(most).max(1),
        }
    }
}
