//! The reason why the bytes of a mapped file do not change, or why they may.

use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, SealFlags};

use crate::sys::{Errno, stat};
use nowait_residency::magic;

/// Filesystems on which the kernel asks the holder of a lease before a file changes. FUSE and
/// overlayfs grant leases, and files change beside them.
const LEASES_HOLD: [u64; 4] = [magic::EXT4, magic::XFS, magic::BTRFS, magic::TMPFS];
/// Filesystems whose files never change.
const READ_ONLY: [u64; 2] = [magic::SQUASHFS, magic::EROFS];

/// The reason why no bytes of a mapping can be borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unavailable {
    /// A program has the file open for writing, this one included.
    OpenForWriting,
    /// The file belongs to another user, and the process lacks `CAP_LEASE`.
    NotOwner,
    /// Files of this filesystem can change beside a lease, or it has no leases.
    Filesystem,
    /// The file has no name, and its filesystem is a tmpfs: it may be a memfd (memfd_create(2))
    /// without seals, which can change beside a lease.
    Nameless,
    /// The file is on xfs, and another user owns it or may write to it. That user could drop the
    /// file's pages from memory, and the kernel does not ask the holder of a lease:
    /// ioctl_fideduperange(2).
    OthersMayWrite,
    /// The file was opened for writing or truncated after it was mapped. Another mapping can be
    /// made later.
    LeaseBroken,
    /// No memory can be locked: the budget, or `RLIMIT_MEMLOCK` (getrlimit(2)).
    NoBudget,
    /// This process is a forked child, and the mapping is its parent's.
    Forked,
    /// The file is empty, not a regular file, or larger than the address space. Or the kernel or a
    /// sandbox denies a system call that is needed, or a thread.
    Unsupported,
}

/// The protection of a file against changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    /// The bytes can never change.
    Immutable {
        /// The file may become longer.
        may_grow: bool,
    },
    /// A lease has to be taken.
    Lease,
}

/// The protection that a file needs.
pub(super) fn of(fd: BorrowedFd<'_>) -> Result<Protection, Unavailable> {
    let on = stat::magic(fd).map_err(|_| Unavailable::Unsupported)?;
    if !stat::known(fd).is_ok_and(|file| file.kind == FileType::RegularFile) {
        return Err(Unavailable::Unsupported);
    }
    if READ_ONLY.contains(&on) {
        return Ok(Protection::Immutable { may_grow: false });
    }
    let seals = rustix::fs::fcntl_get_seals(fd).unwrap_or(SealFlags::empty());
    if seals.contains(SealFlags::SHRINK | SealFlags::WRITE) {
        let may_grow = !seals.contains(SealFlags::GROW);
        return Ok(Protection::Immutable { may_grow });
    }
    // The kernel grants a lease of a memfd although the program that made it may write to it and
    // truncate it. Memfds have no name.
    let links = stat::links(fd).map_err(|_| Unavailable::Unsupported)?;
    let others = stat::others_may_write(fd).map_err(|_| Unavailable::Unsupported)?;
    match LEASES_HOLD.contains(&on) {
        true if on == magic::TMPFS && links == 0 => Err(Unavailable::Nameless),
        true if on == magic::XFS && others => Err(Unavailable::OthersMayWrite),
        true => Ok(Protection::Lease),
        false => Err(Unavailable::Filesystem),
    }
}

/// The reason why a lease was refused.
pub(super) fn refused(errno: Errno) -> Unavailable {
    match errno {
        Errno::AGAIN => Unavailable::OpenForWriting,
        Errno::ACCESS | Errno::PERM => Unavailable::NotOwner,
        Errno::INVAL => Unavailable::Filesystem,
        _ => Unavailable::Unsupported,
    }
}
