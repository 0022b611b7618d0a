//! Reads and writes without an offset, for files that pread(2) does not support.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::sys::errno;

/// Sends an empty message on a socket: send(2), without waiting and without SIGPIPE. ENOTSOCK for
/// any other file. writev(2) of no bytes sends nothing.
pub fn send_empty(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: no memory is passed.
    match unsafe { libc::send(fd.as_raw_fd(), std::ptr::null(), 0, flags) } {
        0.. => Ok(()),
        _ => Err(errno::last()),
    }
}

/// One read(2) or write(2).
///
/// # Safety
/// As for [`transfer_nowait`].
pub unsafe fn transfer(
    fd: BorrowedFd<'_>,
    write: bool,
    start: *mut u8,
    len: usize,
) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let moved = unsafe {
        if write {
            libc::write(fd.as_raw_fd(), start.cast(), len)
        } else {
            libc::read(fd.as_raw_fd(), start.cast(), len)
        }
    };
    usize::try_from(moved).map_err(|_| errno::last())
}

/// One read or write that does not wait: preadv2(2), pwritev2(2) with RWF_NOWAIT at the file's
/// position.
///
/// # Safety
/// The memory must belong to the request. The kernel checks that it is mapped.
pub unsafe fn transfer_nowait(
    fd: BorrowedFd<'_>,
    write: bool,
    start: *mut u8,
    len: usize,
) -> Result<usize, Errno> {
    let iov = libc::iovec {
        iov_base: start.cast(),
        iov_len: len,
    };
    // syscall(2) passes whole registers. An offset of −1 is the file's own position.
    let (position, flags) = (-1_i64, i64::from(libc::RWF_NOWAIT));
    let call = if write {
        libc::SYS_pwritev2
    } else {
        libc::SYS_preadv2
    };
    // SAFETY: the iovec lives through the call, and the memory is as the caller promises.
    let moved = unsafe {
        libc::syscall(
            call,
            fd.as_raw_fd(),
            &raw const iov,
            1,
            position,
            0_i64,
            flags,
        )
    };
    usize::try_from(moved).map_err(|_| errno::last())
}
