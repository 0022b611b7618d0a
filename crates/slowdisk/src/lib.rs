//! A block device with configurable latency, queue depth and faults, for tests and benchmarks of
//! file I/O.
//!
//! ```text
//!   test ── ext4, xfs, btrfs ── /dev/loopN ── one FUSE file ── queue ── backing
//!           TestMount           LoopDevice    server.rs        queue.rs  memory or a sparse file
//! ```
//!
//! A [`SlowDisk`] is one file on a FUSE mount that this process serves. Each request waits for one
//! of the disk's places, takes the configured latency, and may fail or stall ([`Fault`]). A
//! [`LoopDevice`] with direct I/O makes the file a block device. A [`TestMount`] makes and mounts a
//! filesystem on it. A [`Zram`] is a block device in memory, without delays. A [`ServedFile`] and a
//! [`ServedDirectory`] are FUSE files without a disk, whose answers a test decides; the files of a
//! [`ServedFlush`] report an error when they are closed; a [`ServedTree`] is a FUSE mount of a
//! directory, with a latency, and a [`LinklessTree`] one that can be changed and has no hard links.
//! Drop undoes everything. If the process is killed, the [janitor](#when-the-process-dies) does.
//!
//! ```no_run
//! use std::time::Duration;
//! use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};
//!
//! let disk = SlowDisk::builder()
//!     .size(1 << 30)
//!     .latency(Duration::from_millis(1))
//!     .queue(64)
//!     .build()?;
//! let mount = TestMount::on(&disk, Filesystem::Ext4)?;
//! std::fs::write(mount.path().join("file"), b"bytes")?;
//!
//! let stall = disk.inject(Fault::stall(0..disk.size()).reads_only());
//! // ... start a read, check which threads wait ...
//! disk.release(stall);
//! # Ok::<(), slowdisk::Error>(())
//! ```
//!
//! # When the process dies
//!
//! The FUSE descriptor is in a descriptor table that only the threads of this crate share. It is
//! closed as soon as they are killed, even while other threads of the process are in
//! uninterruptible I/O on the disk. Their I/O then fails, and the process can end. The janitor is a
//! shell child in its own session, which detects the end of the process in the same way. It then
//! unmounts, detaches and removes what is left.
//!
//! # Requirements
//!
//! Root (CAP_SYS_ADMIN), `/dev/fuse`, `/dev/loop-control`, a shell, util-linux, and the `mkfs`
//! program of the filesystem. [`available`] reports what is missing; [`require!`] then skips a
//! test.
//!
//! # Limits
//!
//! - Wake-ups, FUSE and the loop device add about 50 to 150 µs to the configured latency. The log's
//!   latencies do not include the time in the kernel; they are 25 to 50 µs above the configured
//!   latency.
//! - The loop device has at most 128 requests in flight.
//! - A request of more than 1 MiB arrives as several requests.
//! - The process that uses the disk also serves it. A page fault in a mapping of one of its files
//!   can hold the process's memory lock while it waits. Do not stall such reads.
//! - After `fork` without `exec`, the child must not drop values that the parent made.

mod attributes;
mod backing;
mod cache;
mod connection;
mod copy;
mod debugfs;
mod disk;
mod error;
mod extents;
mod fault;
mod filesystem;
mod janitor;
mod linkless_tree;
mod log;
mod loop_device;
mod missing;
mod mount;
mod nodes;
mod queue;
mod replies;
mod scratch;
mod served_directory;
mod served_file;
mod served_flush;
mod served_mount;
mod served_tree;
mod server;
mod syncs;
mod sys;
mod test_mount;
mod zram;

pub use cache::{drop_caches, evict};
pub use copy::copy_program;
pub use disk::{Builder, FullSpeed, SlowDisk};
pub use error::{Error, Result};
pub use extents::extents;
pub use fault::{Fault, FaultId};
pub use filesystem::Filesystem;
pub use fuser::FileType;
pub use linkless_tree::{Linkless, LinklessTree};
pub use log::{Counters, Entry, Op};
pub use loop_device::LoopDevice;
pub use missing::{Missing, available, skip_or_fail};
pub use mount::Mount;
pub use scratch::directory_until_exit;
pub use served_directory::{ServedDirectory, ServedEntry};
pub use served_file::{Asked, ServedFile};
pub use served_flush::ServedFlush;
pub use served_tree::ServedTree;
pub use test_mount::{Log, TestMount, TestMountBuilder};
pub use zram::Zram;
