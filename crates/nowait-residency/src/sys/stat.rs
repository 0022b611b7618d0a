//! fstat(2), fstatfs(2) and fcntl(2) with the results that a query of residency needs.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, OFlags, Stat};

use super::Errno;

/// The file status flags of a descriptor (fcntl(2), `F_GETFL`). Miri does not implement it for
/// files.
pub fn flags(fd: BorrowedFd<'_>) -> Result<OFlags, Errno> {
    if cfg!(miri) {
        return Ok(OFlags::empty());
    }
    rustix::fs::fcntl_getfl(fd)
}

/// The current size of a file or a block device in bytes.
pub fn size(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    size_of(fd, &rustix::fs::fstat(fd)?)
}

/// The size in bytes. fstat(2) reports a size of 0 for block devices, so their size is queried with
/// ioctl(2).
fn size_of(fd: BorrowedFd<'_>, stat: &Stat) -> Result<u64, Errno> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => device_size(fd),
        _ => Ok(stat.st_size.cast_unsigned()),
    }
}

/// The current type, size and allocation of a file.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Regular file, block device, or something without pages.
    pub kind: FileType,
    /// The size in bytes.
    pub size: u64,
    /// The bytes allocated on the device. They are less than `size` for a file with holes.
    pub allocated: u64,
    /// `st_ctime` in seconds and nanoseconds.
    pub changed: (i64, i64),
}

/// Queries the type, size and allocation of a file.
pub fn shape(fd: BorrowedFd<'_>) -> Result<Shape, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    Ok(Shape {
        kind: FileType::from_raw_mode(stat.st_mode),
        size: size_of(fd, &stat)?,
        allocated: stat.st_blocks.cast_unsigned().saturating_mul(512),
        // rustix's type of the nanoseconds depends on how it makes its calls.
        changed: (
            stat.st_ctime,
            i64::try_from(stat.st_ctime_nsec).unwrap_or(0),
        ),
    })
}

/// `BLKGETSIZE64`: the size of a block device in bytes.
fn device_size(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    const BLKGETSIZE64: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<usize>(0x12, 114);
    // SAFETY: the kernel writes a u64, although the opcode contains a `size_t`.
    unsafe { rustix::ioctl::ioctl(fd, rustix::ioctl::Getter::<BLKGETSIZE64, u64>::new()) }
}

/// `f_type` of the descriptor's filesystem.
pub fn magic(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    Ok(rustix::fs::fstatfs(fd)?.f_type.cast_unsigned())
}
