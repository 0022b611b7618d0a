//! preadv2(2), pwritev2(2) and the calls without flags, on borrowed and on raw memory.
//!
//! `preadv2` is called by number. The wrappers of glibc 2.27 and 2.28 change EAGAIN to EOPNOTSUPP,
//! and rustix reads only into initialised memory.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Errno, check};
use crate::sys::uninit_slice::UninitSlice;

/// The largest transfer of one call (`MAX_RW_COUNT` of the kernel).
pub(crate) const MAX_RW: usize = 0x7fff_f000;

/// The start of a read or write.
///
/// `None` is the file's own position (offset −1 for the kernel), as for read(2).
pub(crate) type Offset = Option<u64>;

#[inline]
fn position(offset: Offset) -> i64 {
    // Offsets beyond i64 become negative, and the kernel refuses them with EINVAL. The exception is
    // −1, which means the file's own position: `checked` refuses it.
    offset.map_or(-1, u64::cast_signed)
}

/// Returns EINVAL for an offset that the kernel refuses, or takes for the file's own position.
#[inline]
pub(crate) fn checked(offset: Offset, len: usize) -> Result<(), Errno> {
    match offset {
        Some(o)
            if o.checked_add(len as u64)
                .is_none_or(|end| end > i64::MAX as u64) =>
        {
            Err(Errno::INVAL)
        }
        _ => Ok(()),
    }
}

/// preadv2(2) into borrowed memory. Without flags it is pread(2) or read(2). Fails with EINVAL for a range that
/// [`checked`] refuses.
// This is most of what a cached read does in user space. The flags are constants.
#[inline(always)]
pub(crate) fn preadv2(
    fd: BorrowedFd<'_>,
    space: &mut UninitSlice<'_>,
    offset: Offset,
    flags: u32,
) -> Result<usize, Errno> {
    checked(offset, space.len())?;
    if flags == 0 {
        // SAFETY: the space is borrowed mutably during the call. The kernel writes initialised bytes.
        return unsafe { preadv2_raw(fd, space.as_mut_ptr(), space.len(), offset, 0) };
    }
    let raw = fd.as_raw_fd();
    let iov = libc::iovec {
        iov_base: space.as_mut_ptr().cast(),
        iov_len: space.len(),
    };
    let iov = &raw const iov;
    // SAFETY: as above. The iovec is valid during the call.
    unsafe {
        check(syscall!(
            libc::SYS_preadv2,
            raw,
            iov,
            1,
            position(offset),
            0,
            flags
        ))
    }
}

/// pwritev2(2) from borrowed memory. Fails with EINVAL for a range that [`checked`] refuses.
pub(crate) fn pwritev2(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    offset: Offset,
    flags: u32,
) -> Result<usize, Errno> {
    checked(offset, bytes.len())?;
    // SAFETY: the slice is borrowed during the call.
    unsafe { pwritev2_raw(fd, bytes.as_ptr(), bytes.len(), offset, flags) }
}

macro_rules! transfer {
    (
        $(#[$one_doc:meta])* $one:ident($byte:ty) by $pread:ident, $read:ident;
        $(#[$many_doc:meta])* $many:ident by $preadv:ident, $readv:ident, $preadv2:ident;
    ) => {
        $(#[$one_doc])*
        #[inline]
        pub(crate) unsafe fn $one(
            fd: BorrowedFd<'_>,
            buf: $byte,
            len: usize,
            offset: Offset,
            flags: u32,
        ) -> Result<usize, Errno> {
            let len = len.min(MAX_RW);
            let raw = fd.as_raw_fd();
            // SAFETY: the caller's obligation. The iovec is valid during the call. A call that
            // writes to the file only reads the memory, which may be constant.
            unsafe {
                match (flags, offset) {
                    (0, Some(at)) => {
                        check(libc::$pread(raw, buf.cast(), len, at.cast_signed()) as libc::c_long)
                    }
                    (0, None) => check(libc::$read(raw, buf.cast(), len) as libc::c_long),
                    _ => {
                        let iov = libc::iovec {
                            iov_base: buf as *mut libc::c_void,
                            iov_len: len,
                        };
                        $many(fd, &raw const iov, 1, offset, flags)
                    }
                }
            }
        }

        $(#[$many_doc])*
        #[inline]
        pub(crate) unsafe fn $many(
            fd: BorrowedFd<'_>,
            iov: *const libc::iovec,
            count: usize,
            offset: Offset,
            flags: u32,
        ) -> Result<usize, Errno> {
            let raw = fd.as_raw_fd();
            // The kernel accepts at most IOV_MAX iovecs, and returns EINVAL for more.
            let count = i32::try_from(count).map_err(|_| Errno::INVAL)?;
            // SAFETY: the caller's obligation. On 64-bit systems the whole offset is in the low
            // word of the call by number.
            unsafe {
                check(match (flags, offset) {
                    (0, Some(at)) => libc::$preadv(raw, iov, count, at.cast_signed()) as libc::c_long,
                    (0, None) => libc::$readv(raw, iov, count) as libc::c_long,
                    _ => syscall!(libc::$preadv2, raw, iov, count, position(offset), 0, flags),
                })
            }
        }
    };
}

transfer! {
    /// preadv2(2) into one piece of memory. Without flags it is pread(2) or read(2), which all
    /// kernels have and all sandboxes allow.
    ///
    /// # Safety
    /// `buf` must be valid for writes of `len` bytes during the call.
    preadv2_raw(*mut u8) by pread, read;
    /// preadv2(2) into several pieces of memory. Without flags it is preadv(2) or readv(2).
    ///
    /// # Safety
    /// `iov` must point to `count` iovecs whose memory is valid for writes.
    preadv2_vectored by preadv, readv, SYS_preadv2;
}

transfer! {
    /// pwritev2(2) from one piece of memory. Without flags it is pwrite(2) or write(2).
    ///
    /// # Safety
    /// `buf` must be valid for reads of `len` bytes during the call.
    pwritev2_raw(*const u8) by pwrite, write;
    /// pwritev2(2) from several pieces of memory. Without flags it is pwritev(2) or writev(2).
    ///
    /// # Safety
    /// `iov` must point to `count` iovecs whose memory is valid for reads.
    pwritev2_vectored by pwritev, writev, SYS_pwritev2;
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
    // SAFETY: the call accesses no memory of this process.
    let ret = unsafe { libc::sync_file_range(fd.as_raw_fd(), offset, len, flags) };
    check(libc::c_long::from(ret))
}

/// Arguments of the probes, as wide as a register, which is what syscall(2) takes.
const NO_FD: libc::c_long = -1;
const ZERO: libc::c_long = 0;

/// The errno of preadv2(2) for an invalid descriptor. EBADF means that the call is available.
pub(crate) fn probe_preadv2() -> Errno {
    // SAFETY: descriptor −1 fails before any memory is accessed.
    let ret = unsafe { syscall!(libc::SYS_preadv2, NO_FD, ZERO, ZERO, ZERO, ZERO, ZERO) };
    check(ret).err().unwrap_or(Errno::IO)
}

/// The errno of pwritev2(2) for an invalid descriptor.
pub(crate) fn probe_pwritev2() -> Errno {
    // SAFETY: as above.
    let ret = unsafe { syscall!(libc::SYS_pwritev2, NO_FD, ZERO, ZERO, ZERO, ZERO, ZERO) };
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
