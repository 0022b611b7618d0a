//! The decision how a directory is scanned, from what is known of its filesystem and its device. What
//! shows only while it runs (is it cached? does the device make us wait?) tunes the number of workers
//! then; see `task_group.rs`.

use super::order::StatOrder;
use crate::filesystem::Filesystem;
use crate::task_group::processors;

/// How a directory is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// In how many parts at most its names are listed at the same time; 1 where the filesystem's
    /// directory positions can't be cut. A small directory is never cut.
    pub parts: usize,
    /// In which order metadata is asked for.
    pub stat_order: StatOrder,
    /// How many workers at most help. As many as there are processors as long as nothing has to wait
    /// for the device, all of them when it has.
    pub workers: usize,
    /// Whether many workers ask about the first entry of each batch only, which brings its block, and
    /// one of them about the rest: where lookups in one directory keep each other waiting.
    pub prefetch_first: bool,
    /// The filesystem that this was chosen for, where its name is known.
    pub filesystem: Option<&'static str>,
    /// Whether its device calls itself rotating, as every disk of many virtual machines does; `None`
    /// where there is no block device, or none that can be found.
    pub rotating: Option<bool>,
}

/// What the caller insists on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Insisted {
    pub(super) parts: Option<usize>,
    pub(super) stat_order: Option<StatOrder>,
    pub(super) workers: Option<usize>,
}

/// Parts and workers for a device with a queue. More bring nothing on a disk of 1 ms with 64 places,
/// and are taken from others.
const PARTS: usize = 32;
const WORKERS: usize = 32;

const EXT: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
/// Filesystems that have no device, or none to speak of: tmpfs, ramfs, proc, sysfs, devtmpfs' kin.
const NO_DEVICE: [u64; 4] = [0x0102_1994, 0x8584_58f6, 0x9fa0, 0x6265_6572];
/// Lustre: its client prefetches attributes for one thread that asks in the directory's own order,
/// and stops doing so for any other.
const LUSTRE: u64 = 0x0bd0_0bd0;

/// Chooses.
pub(super) fn choose(filesystem: &Filesystem, insisted: Insisted) -> Plan {
    let rotating = filesystem.rotating();
    let (parts, stat_order, workers) = match filesystem.magic() {
        EXT | XFS | BTRFS => (PARTS, StatOrder::Inode, WORKERS),
        magic if NO_DEVICE.contains(&magic) => (1, StatOrder::Listed, processors()),
        LUSTRE => (1, StatOrder::Listed, 1),
        // Whatever it is, its heads move.
        _ if rotating == Some(true) => (1, StatOrder::Inode, WORKERS),
        // A network, a daemon, layers of others, or unknown: inode numbers may mean nothing there,
        // but answers can be waited for in parallel.
        _ => (1, StatOrder::Listed, WORKERS),
    };
    Plan {
        parts: insisted.parts.unwrap_or(parts).max(1),
        stat_order: insisted.stat_order.unwrap_or(stat_order),
        // A lookup holds the root block of the directory's index for itself, and who waits for it is
        // given it asleep: two workers with everything in memory are slower than one.
        prefetch_first: filesystem.magic() == XFS,
        workers: insisted.workers.unwrap_or(workers).max(1),
        filesystem: filesystem.name(),
        rotating,
    }
}
