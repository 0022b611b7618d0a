//! A disk of our choosing, for tests and benchmarks of file I/O.
//!
//! ```text
//!   test ── ext4, xfs, btrfs ── /dev/loopN ── one FUSE file ── queue ── backing
//!           TestMount           LoopDevice    server.rs        queue.rs  memory or a sparse file
//! ```
//!
//! A [`SlowDisk`] is one file on a FUSE mount served by this process. Each request waits for one of
//! the disk's places, takes the latency asked for, and may fail or stall ([`Fault`]). A
//! [`LoopDevice`] with direct I/O makes a block device of it, a [`TestMount`] a mounted filesystem.
//! A [`Zram`] is a block device in memory, for what should not wait at all.
//! Everything is undone on drop, and by the [`janitor`](#when-the-process-dies) when there is no drop.
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
//! // ... start a read, look at who waits ...
//! disk.release(stall);
//! # Ok::<(), slowdisk::Error>(())
//! ```
//!
//! # When the process dies
//!
//! The FUSE descriptor lives in a descriptor table that only the rig's own threads share, so it is
//! closed as soon as they are killed, even while other threads of the process sit in
//! uninterruptible I/O on the very disk: that I/O then fails, and the process can end. A shell
//! child in a session of its own notices in the same way and unmounts, detaches and removes what
//! was left, whatever killed the process.
//!
//! # What it needs
//!
//! Root (CAP_SYS_ADMIN), `/dev/fuse`, `/dev/loop-control`, a shell, util-linux, and the `mkfs`
//! program of the filesystem. [`available`] says what is missing; [`require!`] skips a test then.
//!
//! # Limits
//!
//! - Waking up, FUSE and the loop device add some 50 to 150 µs to the latency asked for; the log
//!   has it without the way through the kernel, 25 to 50 µs above what was asked for.
//! - The loop device admits 128 requests at once.
//! - A request of more than 1 MiB arrives as several.
//! - The disk is served by the process that uses it. A page fault in a mapping of one of its files
//!   can hold the process's memory lock while it waits; don't stall such reads.
//! - After `fork` without `exec` the child must not drop what the parent made.

mod backing;
mod cache;
mod disk;
mod error;
mod extents;
mod fault;
mod filesystem;
mod janitor;
mod log;
mod loop_device;
mod missing;
mod mount;
mod queue;
mod scratch;
mod server;
mod sys;
mod test_mount;
mod zram;

pub use cache::{drop_caches, evict};
pub use disk::{Builder, FullSpeed, SlowDisk};
pub use error::{Error, Result};
pub use extents::extents;
pub use fault::{Fault, FaultId};
pub use filesystem::Filesystem;
pub use log::{Counters, Entry, Op};
pub use loop_device::LoopDevice;
pub use missing::{Missing, available, skip_or_fail};
pub use mount::Mount;
pub use test_mount::{TestMount, TestMountBuilder};
pub use zram::Zram;
