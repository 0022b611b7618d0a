//! statx(2) and fstatfs(2) with the results that the library needs.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags};

use super::Errno;
pub(crate) use nowait_residency::sys::stat::{flags, magic, size};

/// A mounted filesystem. The device number is not sufficient, because the kernel reuses the numbers
/// of unmounted tmpfs, overlayfs and btrfs filesystems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FilesystemId {
    /// `st_dev`.
    pub dev: u64,
    /// `f_type`, the filesystem's magic number.
    pub magic: u64,
    /// `f_fsid`, if the filesystem has one.
    pub id: u64,
}

/// The filesystem of an open file, and true if each write waits for the device, because the filesystem is
/// mounted with the option `sync`: fstatfs(2), which on NFS and FUSE waits for the server.
pub(crate) fn filesystem(fd: BorrowedFd<'_>, file: &Known) -> Result<(FilesystemId, bool), Errno> {
    let statfs = rustix::fs::fstatfs(fd)?;
    // `ST_SYNCHRONOUS`. The type of the flags depends on the C library.
    let syncs = statfs.f_flags & 16 != 0;
    Ok((FilesystemId::new(file.device, &statfs), syncs))
}

impl FilesystemId {
    /// Makes the identifier for a file with this `st_dev`.
    pub(crate) fn new(dev: u64, statfs: &rustix::fs::StatFs) -> FilesystemId {
        FilesystemId {
            dev,
            magic: statfs.f_type.cast_unsigned(),
            id: fsid(statfs),
        }
    }
}

fn fsid(statfs: &rustix::fs::StatFs) -> u64 {
    // `f_fsid` is opaque: two ints in private fields of libc's type.
    // SAFETY: `fsid_t` consists of eight bytes of plain data on Linux.
    unsafe { std::mem::transmute_copy(&statfs.f_fsid) }
}

/// The properties of a file that are known without asking a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub kind: FileType,
    /// `st_dev`.
    pub device: u64,
    /// The ID of its mount, which is not used again for other mounts. `None` before Linux 6.8.
    pub mount: Option<u64>,
    /// True if the filesystem has the attribute `nodump` (chattr(1)), or if it has `compressed` and the file
    /// is immutable, as all of EROFS. No server has either. overlayfs reports what the layer does.
    ///
    /// The birth time is no sign: SMB, Ceph, NFS (Linux 6.16) and some servers of FUSE report it. Nor is
    /// `immutable` alone, which overlayfs stores itself, also on an upper layer of FUSE.
    pub looks_local: bool,
    /// True if the filesystem has the attribute `nodump`. EROFS, on which layers of overlayfs may refer to files elsewhere, has it
    /// not.
    pub has_nodump: bool,
}

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8).
pub(crate) const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

impl Known {
    /// A file of which nothing is known.
    #[cfg(feature = "tokio")]
    pub(crate) fn nothing() -> Known {
        Known {
            kind: FileType::Unknown,
            device: 0,
            mount: None,
            looks_local: false,
            has_nodump: false,
        }
    }

    pub(crate) fn is_regular(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    /// Returns true if reads and writes wait at most for a device: those of regular files, directories and
    /// block devices.
    pub(crate) fn is_bounded(&self) -> bool {
        let others = [FileType::Directory, FileType::BlockDevice];
        self.is_regular() || others.contains(&self.kind)
    }

    /// From a result of statx(2) that was asked for [`MNT_ID_UNIQUE`].
    pub(crate) fn of(stat: &Statx) -> Known {
        let has = |field: StatxFlags| stat.stx_mask & field.bits() != 0;
        let supported = stat.stx_attributes_mask;
        Known {
            kind: FileType::from_raw_mode(stat.stx_mode.into()),
            device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            mount: has(MNT_ID_UNIQUE).then_some(stat.stx_mnt_id),
            has_nodump: supported.contains(StatxAttributes::NODUMP),
            looks_local: supported.contains(StatxAttributes::NODUMP)
                || (supported.contains(StatxAttributes::COMPRESSED)
                    && stat.stx_attributes.contains(StatxAttributes::IMMUTABLE)),
        }
    }
}

/// The type of a file, its device and its mount, as far as they are known without asking a server (statx(2)). Local
/// filesystems fill in other fields, too. SMB waits until changed data is written, if it is asked for the size or the times.
pub(crate) fn in_memory(fd: BorrowedFd<'_>) -> Result<Statx, Errno> {
    statx(fd, StatxFlags::TYPE | MNT_ID_UNIQUE)
}

/// These fields of the metadata of a file, as far as they are known without asking a server.
pub(crate) fn statx(fd: BorrowedFd<'_>, fields: StatxFlags) -> Result<Statx, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(fd, c"", flags, fields)
}

/// Queries the type of a file, its device and its mount, as far as they are known without asking a server.
/// fstat(2) has the type and the device if a sandbox denies statx(2).
pub(crate) fn known(fd: BorrowedFd<'_>) -> Result<Known, Errno> {
    // Miri's statx(2) has no such fields.
    if !cfg!(miri)
        && let Ok(stat) = in_memory(fd)
    {
        return Ok(Known::of(&stat));
    }
    let stat = rustix::fs::fstat(fd)?;
    Ok(Known {
        kind: FileType::from_raw_mode(stat.st_mode),
        device: stat.st_dev,
        mount: None,
        looks_local: false,
        has_nodump: false,
    })
}

/// Returns true if a descriptor has offsets. Only ESPIPE means that it has none.
pub(crate) fn is_seekable(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::tell(fd) != Err(Errno::SPIPE)
}

/// Returns true if a file has no byte at or after this offset. Called after a read that was short
/// there.
pub(crate) fn ends_by(fd: BorrowedFd<'_>, offset: u64) -> bool {
    size(fd).is_ok_and(|size| size <= offset)
}

/// The number of names of a file.
pub(crate) fn links(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    #[allow(
        clippy::useless_conversion,
        reason = "the type depends on the platform"
    )]
    rustix::fs::fstat(fd).map(|stat| stat.st_nlink.into())
}

/// Returns true if a user other than root and that of this process owns the file or may write to
/// it. The bits of the group are the mask of an access control list (acl(5)), if the file has one.
pub(crate) fn others_may_write(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    let own = [0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid);
    Ok(!own || stat.st_mode & 0o022 != 0)
}

/// Lends a descriptor to a call of `std::fs::File`. The descriptor is not closed.
#[cfg(feature = "tokio")]
pub(crate) fn as_std<T>(fd: BorrowedFd<'_>, call: impl FnOnce(&std::fs::File) -> T) -> T {
    use std::os::fd::{AsRawFd, FromRawFd};
    // SAFETY: the descriptor is open while it is borrowed, and `ManuallyDrop` never closes it.
    let file = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd.as_raw_fd()) });
    call(&file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of statx(2) for a file of an ext4, xfs or tmpfs, with other attributes.
    fn known_with(set: StatxAttributes, supported: StatxAttributes) -> Known {
        let file = tempfile::tempfile().unwrap();
        let fields = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let mut stat = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, fields).unwrap();
        stat.stx_mask |= StatxFlags::BTIME.bits();
        stat.stx_attributes = set;
        stat.stx_attributes_mask = supported;
        Known::of(&stat)
    }

    #[test]
    fn a_birth_time_or_an_immutable_file_is_no_proof_of_a_local_filesystem() {
        let none = StatxAttributes::empty();
        let (nodump, immutable) = (StatxAttributes::NODUMP, StatxAttributes::IMMUTABLE);
        let compressed = StatxAttributes::COMPRESSED;
        // overlayfs with an upper layer of FUSE, with and without `chattr +i`.
        let overlay = immutable | StatxAttributes::APPEND;
        assert!(!known_with(none, overlay).looks_local);
        assert!(!known_with(immutable, overlay).looks_local);
        // SMB.
        let smb = compressed | StatxAttributes::ENCRYPTED;
        assert!(!known_with(none, smb).looks_local);
        // ext4 and EROFS.
        assert!(known_with(none, overlay | nodump).looks_local);
        assert!(known_with(immutable, compressed | immutable).looks_local);
    }
}
