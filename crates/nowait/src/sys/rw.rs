//! preadv2(2), pwritev2(2) and their plain kin, on raw memory.
//!
//! `preadv2` is called by number: the wrappers of glibc 2.27 and 2.28 turn EAGAIN into
//! EOPNOTSUPP, and rustix reads into initialised memory only.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Errno, check};

/// The largest transfer the kernel makes in one call (`MAX_RW_COUNT`).
pub(crate) const MAX_RW: usize = 0x7fff_f000;

/// Where a read or write starts.
///
/// `None` is the file's own position (the kernel's offset −1), as for read(2).
pub(crate) type Offset = Option<u64>;

fn position(offset: Offset) -> i64 {
    // Offsets beyond i64 become negative, which the kernel refuses with EINVAL, but for −1,
    // which would mean "current position": `checked` keeps that one out.
    offset.map_or(-1, u64::cast_signed)
}

/// EINVAL for an offset the kernel could not take, or would take for "current position".
pub(crate) fn checked(offset: Offset, len: usize) -> Result<(), Errno> {
    match offset {
        Some(o) if i64::try_from(o).is_err() => Err(Errno::INVAL),
        Some(o)
            if o.checked_add(len as u64)
                .is_none_or(|end| end > i64::MAX as u64) =>
        {
            Err(Errno::INVAL)
        }
        _ => Ok(()),
    }
}

/// preadv2(2) into one piece of memory. Without flags it is pread(2) or read(2), which every kernel
/// has and every sandbox allows.
///
/// # Safety
/// `buf` must be valid for writes of `len` bytes for the length of the call.
pub(crate) unsafe fn preadv2(
    fd: BorrowedFd<'_>,
    buf: *mut u8,
    len: usize,
    offset: Offset,
    flags: u32,
) -> Result<usize, Errno> {
    let len = len.min(MAX_RW);
    let raw = fd.as_raw_fd();
    // SAFETY: the caller's promise; the iovec lives through the call.
    unsafe {
        match (flags, offset) {
            (0, Some(at)) => {
                check(libc::pread(raw, buf.cast(), len, at.cast_signed()) as libc::c_long)
            }
            (0, None) => check(libc::read(raw, buf.cast(), len) as libc::c_long),
            _ => {
                let iov = libc::iovec {
                    iov_base: buf.cast(),
                    iov_len: len,
                };
                preadv2_all(fd, &raw const iov, 1, offset, flags)
            }
        }
    }
}

/// preadv2(2) into several pieces of memory; preadv(2) or readv(2) without flags.
///
/// # Safety
/// `iov` must point to `count` iovecs whose memory is valid for writes.
pub(crate) unsafe fn preadv2_all(
    fd: BorrowedFd<'_>,
    iov: *const libc::iovec,
    count: usize,
    offset: Offset,
    flags: u32,
) -> Result<usize, Errno> {
    let raw = fd.as_raw_fd();
    // The kernel takes at most IOV_MAX of them.
    let count = i32::try_from(count).map_err(|_| Errno::INVAL)?;
    // SAFETY: the caller's promise. On 64-bit the whole offset is in preadv2's low word.
    unsafe {
        check(match (flags, offset) {
            (0, Some(at)) => libc::preadv(raw, iov, count, at.cast_signed()) as libc::c_long,
            (0, None) => libc::readv(raw, iov, count) as libc::c_long,
            _ => syscall!(
                libc::SYS_preadv2,
                raw,
                iov,
                count,
                position(offset),
                0,
                flags,
            ),
        })
    }
}

/// pwritev2(2) from one piece of memory; pwrite(2) or write(2) without flags.
///
/// # Safety
/// `buf` must be valid for reads of `len` bytes for the length of the call.
pub(crate) unsafe fn pwritev2(
    fd: BorrowedFd<'_>,
    buf: *const u8,
    len: usize,
    offset: Offset,
    flags: u32,
) -> Result<usize, Errno> {
    let len = len.min(MAX_RW);
    let raw = fd.as_raw_fd();
    // SAFETY: the caller's promise; the iovec lives through the call, the kernel only reads.
    unsafe {
        match (flags, offset) {
            (0, Some(at)) => {
                check(libc::pwrite(raw, buf.cast(), len, at.cast_signed()) as libc::c_long)
            }
            (0, None) => check(libc::write(raw, buf.cast(), len) as libc::c_long),
            _ => {
                let iov = libc::iovec {
                    iov_base: buf.cast_mut().cast(),
                    iov_len: len,
                };
                pwritev2_all(fd, &raw const iov, 1, offset, flags)
            }
        }
    }
}

/// pwritev2(2) from several pieces of memory; pwritev(2) or writev(2) without flags.
///
/// # Safety
/// `iov` must point to `count` iovecs whose memory is valid for reads.
pub(crate) unsafe fn pwritev2_all(
    fd: BorrowedFd<'_>,
    iov: *const libc::iovec,
    count: usize,
    offset: Offset,
    flags: u32,
) -> Result<usize, Errno> {
    let raw = fd.as_raw_fd();
    // The kernel takes at most IOV_MAX of them.
    let count = i32::try_from(count).map_err(|_| Errno::INVAL)?;
    // SAFETY: the caller's promise.
    unsafe {
        check(match (flags, offset) {
            (0, Some(at)) => libc::pwritev(raw, iov, count, at.cast_signed()) as libc::c_long,
            (0, None) => libc::writev(raw, iov, count) as libc::c_long,
            _ => syscall!(
                libc::SYS_pwritev2,
                raw,
                iov,
                count,
                position(offset),
                0,
                flags,
            ),
        })
    }
}

/// sync_file_range(2).
pub(crate) fn sync_file_range(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: u64,
    flags: u32,
) -> Result<usize, Errno> {
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else {
        return Err(Errno::INVAL);
    };
    // SAFETY: the call touches no memory of ours.
    let ret = unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, len, flags) };
    check(libc::c_long::from(ret))
}

/// What preadv2(2) says of a descriptor that can't exist: EBADF means that the call is there.
pub(crate) fn probe_preadv2() -> Errno {
    // SAFETY: descriptor −1 fails before any memory is looked at.
    let ret = unsafe { syscall!(libc::SYS_preadv2, -1, 0, 0, 0, 0, 0) };
    check(ret).err().unwrap_or(Errno::IO)
}

/// What pwritev2(2) says of a descriptor that can't exist.
pub(crate) fn probe_pwritev2() -> Errno {
    // SAFETY: as above.
    let ret = unsafe { syscall!(libc::SYS_pwritev2, -1, 0, 0, 0, 0, 0) };
    check(ret).err().unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_that_would_mean_current_position_are_refused() {
        assert_eq!(checked(Some(u64::MAX), 0), Err(Errno::INVAL));
        assert_eq!(checked(Some(i64::MAX as u64), 1), Err(Errno::INVAL));
        assert_eq!(checked(Some(i64::MAX as u64), 0), Ok(()));
        assert_eq!(checked(None, usize::MAX), Ok(()));
    }
}
