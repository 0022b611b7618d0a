//! The position of a descriptor.
//!
//! lseek(2) waits as long as another thread, or another process that has the same open file, is in
//! read(2): without end for a file such as /proc/kmsg. fcntl(2) looks at the position without
//! waiting: it adds it to the start of a lock, and fails with EOVERFLOW if the sum is too large. The
//! lock has `l_pid` = 1, too, for which the kernel fails with EINVAL before it looks at locks or asks a server.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::statx::{statx, syscall};
use crate::system_calls;

/// The position of a descriptor between `start` and `end`. Makes three system calls if it is one of
/// them, and more otherwise. `None` if the kernel does not answer, or for a descriptor of O_PATH.
pub fn position(fd: BorrowedFd<'_>, start: u64, end: u64) -> Option<u64> {
    if end <= start || !is_after(fd, start)? {
        return Some(start);
    }
    if is_after(fd, end - 1)? {
        return Some(end);
    }
    let (mut before, mut at) = (start, end - 1);
    while at - before > 1 {
        let middle = before + (at - before) / 2;
        match is_after(fd, middle)? {
            true => before = middle,
            false => at = middle,
        }
    }
    Some(at)
}

/// Returns true if the position of a descriptor is greater than an offset.
pub fn is_after(fd: BorrowedFd<'_>, offset: u64) -> Option<bool> {
    let start = i64::MAX - i64::try_from(offset).ok()?;
    // SAFETY: all bytes zero are a lock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as _;
    lock.l_whence = libc::SEEK_CUR as _;
    lock.l_start = start;
    // A lock of an open file has no process. The kernel looks at that after the sum.
    lock.l_pid = 1;
    let next = syscall()?;
    let (fd, command) = (fd.as_raw_fd(), libc::F_OFD_GETLK);
    // SAFETY: the kernel reads and writes the lock during the call. fcntl(2) of this library is not called.
    let answer = unsafe { next(libc::SYS_fcntl, fd, command, &raw mut lock) };
    match system_calls::errno() {
        libc::EOVERFLOW if answer < 0 => Some(true),
        libc::EINVAL if answer < 0 => Some(false),
        _ => None,
    }
}

/// The size of a regular file.
pub fn size(fd: BorrowedFd<'_>) -> Option<u64> {
    let stat = statx(fd, 0)?;
    stat.is_regular.then_some(stat.size)
}
