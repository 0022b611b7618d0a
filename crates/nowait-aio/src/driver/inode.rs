//! The identity of a file on a filesystem.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

/// Device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inode(u64, u64);

impl Inode {
    /// Asks fstat(2).
    pub fn of(fd: BorrowedFd<'_>) -> Result<Inode, Errno> {
        let stat = rustix::fs::fstat(fd)?;
        Ok(Inode(stat.st_dev, stat.st_ino))
    }
}
