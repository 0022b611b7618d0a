//! fstat(2) and fstatfs(2) in the shape we need.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};

use super::Errno;

/// What fstat(2) and fstatfs(2) say of an open file, once, when it is taken in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Identity {
    /// Whether it is a regular file.
    pub regular: bool,
    /// Whether its reads and writes wait for a device at most: a regular file, a directory or a
    /// block device.
    pub bounded: bool,
    /// Which filesystem it lies on.
    pub filesystem: FilesystemId,
}

/// A mounted filesystem. The device number alone is not enough: the kernel gives the numbers of
/// unmounted tmpfs, overlayfs and btrfs to the next mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
    let kind = FileType::from_raw_mode(stat.st_mode);
    let bounded = [
        FileType::RegularFile,
        FileType::Directory,
        FileType::BlockDevice,
    ];
    Ok(Identity {
        regular: kind == FileType::RegularFile,
        bounded: bounded.contains(&kind),
        filesystem: FilesystemId::new(stat.st_dev, &statfs),
    })
}

/// The file status flags of a descriptor (fcntl(2), `F_GETFL`). Miri does not implement it for files.
pub(crate) fn flags(fd: BorrowedFd<'_>) -> Result<OFlags, Errno> {
    if cfg!(miri) {
        return Ok(OFlags::empty());
    }
    rustix::fs::fcntl_getfl(fd)
}

impl FilesystemId {
    /// The filesystem of a file with this `st_dev`.
    pub(crate) fn new(dev: u64, statfs: &rustix::fs::StatFs) -> FilesystemId {
        FilesystemId {
            dev,
            magic: statfs.f_type.cast_unsigned(),
            id: fsid(statfs),
        }
    }
}

fn fsid(statfs: &rustix::fs::StatFs) -> u64 {
    // `f_fsid` is opaque: two ints whose fields libc keeps private.
    // SAFETY: `fsid_t` is eight bytes of plain data on every Linux.
    unsafe { std::mem::transmute_copy(&statfs.f_fsid) }
}

/// What a file is and the device it lies on (statx(2)), as far as it is known without asking a server.
pub(crate) fn kind_and_device(fd: BorrowedFd<'_>) -> Result<(FileType, u64), Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(fd, c"", flags, StatxFlags::TYPE)?;
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    Ok((FileType::from_raw_mode(stat.stx_mode.into()), device))
}

/// Whether a descriptor has offsets. Only ESPIPE says that it has none.
pub(crate) fn is_seekable(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::tell(fd) != Err(Errno::SPIPE)
}

/// The file's size in bytes, now.
pub(crate) fn size(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    Ok(rustix::fs::fstat(fd)?.st_size.cast_unsigned())
}

/// Whether a file has no byte at this offset, nor behind it. Asked after a read that was short there.
pub(crate) fn ends_by(fd: BorrowedFd<'_>, offset: u64) -> bool {
    shape(fd).is_ok_and(|shape| shape.size <= offset)
}

/// What a file has for pages, now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Regular file, block device, or something without pages.
    pub kind: FileType,
    /// Bytes.
    pub size: u64,
    /// Bytes that have room on the device; less than `size` for a file with holes.
    pub allocated: u64,
    /// `st_ctime`: seconds and nanoseconds.
    pub changed: (i64, i64),
}

/// Asks what a file has for pages. fstat(2) says of every block device that it is empty; those are
/// asked for their size by ioctl(2).
pub(crate) fn shape(fd: BorrowedFd<'_>) -> Result<Shape, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let size = match kind {
        FileType::BlockDevice => device_size(fd)?,
        _ => stat.st_size.cast_unsigned(),
    };
    Ok(Shape {
        kind,
        size,
        allocated: stat.st_blocks.cast_unsigned().saturating_mul(512),
        // rustix's type of the nanoseconds depends on how it makes its calls.
        changed: (
            stat.st_ctime,
            i64::try_from(stat.st_ctime_nsec).unwrap_or(0),
        ),
    })
}

/// `BLKGETSIZE64`: bytes of a block device.
fn device_size(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    const BLKGETSIZE64: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<usize>(0x12, 114);
    // SAFETY: the kernel writes a u64, whatever the `size_t` in the opcode says.
    unsafe { rustix::ioctl::ioctl(fd, rustix::ioctl::Getter::<BLKGETSIZE64, u64>::new()) }
}

/// `f_type` of the filesystem a descriptor lies on.
pub(crate) fn magic(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    Ok(rustix::fs::fstatfs(fd)?.f_type.cast_unsigned())
}

/// The same file opened once more, for reading, with a position of its own. Not by its path, which
/// may be somebody else's by now.
pub(crate) fn reopen(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::openat(
        rustix::fs::CWD,
        format!("/proc/self/fd/{}", fd.as_raw_fd()),
        flags,
        rustix::fs::Mode::empty(),
    )
}

/// Lends a descriptor to a call of the standard library's file, which is not closed.
#[cfg(feature = "tokio")]
pub(crate) fn as_std<T>(fd: BorrowedFd<'_>, call: impl FnOnce(&std::fs::File) -> T) -> T {
    use std::os::fd::FromRawFd;
    // SAFETY: the descriptor is open for as long as it is borrowed, and `ManuallyDrop` never closes
    // it.
    let file = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd.as_raw_fd()) });
    call(&file)
}

/// A file of tokio's face from a bare number, as `tokio::fs::File` has it.
#[cfg(feature = "tokio")]
impl std::os::fd::FromRawFd for crate::tokio::File {
    unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> crate::tokio::File {
        // SAFETY: the caller's promise: the descriptor is open, and is ours from now on.
        unsafe { OwnedFd::from_raw_fd(fd) }.into()
    }
}
