//! fstat(2) and fstatfs(2) in the shape we need.

use std::os::fd::BorrowedFd;

use super::Errno;

/// What fstat(2) and fstatfs(2) say of an open file, once, when it is taken in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// Whether it is a regular file.
    pub regular: bool,
    /// Which filesystem it lies on.
    pub filesystem: FilesystemId,
}

/// A mounted filesystem. The device number alone is not enough: the kernel gives the numbers of
/// unmounted tmpfs, overlayfs and btrfs to the next mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FilesystemId {
    /// `st_dev`.
    pub dev: u64,
    /// `f_type`, the filesystem's magic number.
    pub magic: u64,
    /// `f_fsid`, where the filesystem has one.
    pub id: u64,
}

/// Asks what a descriptor is.
pub(crate) fn identity(fd: BorrowedFd<'_>) -> Result<Identity, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    let statfs = rustix::fs::fstatfs(fd)?;
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    Ok(Identity {
        regular: kind == rustix::fs::FileType::RegularFile,
        filesystem: FilesystemId {
            dev: stat.st_dev,
            magic: statfs.f_type as u64,
            id: fsid(&statfs),
        },
    })
}

fn fsid(statfs: &rustix::fs::StatFs) -> u64 {
    // `f_fsid` is opaque: two ints whose fields libc keeps private.
    // SAFETY: `fsid_t` is eight bytes of plain data on every Linux.
    unsafe { std::mem::transmute_copy(&statfs.f_fsid) }
}

/// Whether a descriptor has offsets. Only ESPIPE says that it has none.
pub(crate) fn is_seekable(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::tell(fd) != Err(Errno::SPIPE)
}

/// The file's size in bytes, now.
pub(crate) fn size(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    Ok(rustix::fs::fstat(fd)?.st_size as u64)
}
