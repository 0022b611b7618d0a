//! preadv2(2) and pwritev2(2) with all flags, and reads of cached data alone.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;

use libc::{iovec, off_t, size_t, ssize_t};
use nowait::buffer::{RawMemory, UninitSlice};
use nowait::read::{Cached, cached};

use crate::guard::{Outcome, failed, get_mut, guard, guard_with_errno};

/// All bytes were in the page cache: as many as requested, or up to the end of the file.
pub const NW_CACHED_ALL: c_int = 0;
/// A leading part of the bytes was in the page cache.
pub const NW_CACHED_PREFIX: c_int = 1;
/// The first byte was not in the page cache.
pub const NW_CACHED_NOTHING: c_int = 2;
/// The kernel, the sandbox or the filesystem has no RWF_NOWAIT.
pub const NW_CACHED_UNSUPPORTED: c_int = 3;
/// Nothing was tried, and nothing was read: see nw_file(3) for the reasons (nw_file_pread_cached alone).
pub const NW_CACHED_SKIPPED: c_int = 4;

fn syscall(
    number: libc::c_long,
    fd: c_int,
    iov: *const iovec,
    iovcnt: c_int,
    offset: off_t,
    flags: c_int,
) -> Outcome<ssize_t> {
    // The arguments of syscall(2) are as wide as a register. The offset has a low and a high half:
    // on 64 bits the high half is unused.
    let word = |value: c_int| libc::c_long::from(value);
    // SAFETY: the kernel checks all addresses, and the C program owns the memory.
    let n = unsafe {
        libc::syscall(
            number,
            word(fd),
            iov,
            word(iovcnt),
            offset,
            word(0),
            word(flags),
        )
    };
    if n < 0 {
        // SAFETY: the address of the calling thread's `errno`.
        return Err(unsafe { *libc::__errno_location() });
    }
    Ok(n as ssize_t)
}

/// preadv2(2), by system call. Every RWF_* flag is passed to the kernel, and none is dropped.
/// Returns the number of bytes, or −errno, with errno set too. See nw_preadv2(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_preadv2(
    fd: c_int,
    iov: *const iovec,
    iovcnt: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    guard_with_errno(|| syscall(libc::SYS_preadv2, fd, iov, iovcnt, offset, flags))
}

/// pwritev2(2), by system call. Every RWF_* flag is passed to the kernel, and none is dropped.
/// Returns the number of bytes, or −errno, with errno set too. See nw_preadv2(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_pwritev2(
    fd: c_int,
    iov: *const iovec,
    iovcnt: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    guard_with_errno(|| syscall(libc::SYS_pwritev2, fd, iov, iovcnt, offset, flags))
}

/// Reads the bytes of a range that the page cache has. If RWF_NOWAIT is refused, it can wait for the
/// device: the bytes may be evicted between the query of residency and the read. Returns NW_CACHED_ALL,
/// NW_CACHED_PREFIX, NW_CACHED_NOTHING or NW_CACHED_UNSUPPORTED, or −errno. *n is the number of
/// bytes that were read. See nw_pread_cached(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_pread_cached(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    offset: off_t,
    n: *mut size_t,
) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let fd = unsafe { descriptor(fd)? };
        let read = |space: UninitSlice<'_>, offset| cached(fd, space, offset).map(Some);
        // SAFETY: as above.
        unsafe { read_cached(buf, len, offset, n, read) }
    })
}

/// Reads into memory of the C program what the page cache has, by `read`, and converts the result.
/// `read` returns `None` if it has tried nothing.
///
/// # Safety
/// The memory is writable, or not mapped. `n` is null, or valid for writes.
pub(crate) unsafe fn read_cached(
    buf: *mut c_void,
    len: size_t,
    offset: off_t,
    n: *mut size_t,
    read: impl FnOnce(UninitSlice<'_>, u64) -> nowait::Result<Option<Cached>>,
) -> Outcome<c_int> {
    // SAFETY: the caller's promise.
    let (place, space) = unsafe { (get_mut(n)?, space(buf, len)?) };
    let offset = u64::try_from(offset).map_err(|_| libc::EINVAL)?;
    let (answer, n) = match read(space, offset).map_err(failed)? {
        Some(Cached::All(n)) => (NW_CACHED_ALL, n),
        Some(Cached::Prefix(n)) => (NW_CACHED_PREFIX, n),
        Some(Cached::Nothing) => (NW_CACHED_NOTHING, 0),
        Some(Cached::Unsupported(_)) => (NW_CACHED_UNSUPPORTED, 0),
        None => (NW_CACHED_SKIPPED, 0),
    };
    *place = n;
    Ok(answer)
}

/// A descriptor of the C program. EBADF for a negative number.
///
/// # Safety
/// The descriptor stays open during the call, or belongs to no other file.
pub(crate) unsafe fn descriptor<'a>(fd: c_int) -> Outcome<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(libc::EBADF);
    }
    // SAFETY: the caller's promise. A number without an open file fails with EBADF in each call.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Memory of the C program to read into. EFAULT for a null pointer, EINVAL for more bytes than can
/// be read.
///
/// # Safety
/// The memory is writable for `'a`, or not mapped.
pub(crate) unsafe fn space<'a>(buf: *mut c_void, len: size_t) -> Outcome<UninitSlice<'a>> {
    if len > isize::MAX as usize {
        return Err(libc::EINVAL);
    }
    if len == 0 {
        return Ok(UninitSlice::Uninit(&mut []));
    }
    if buf.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    Ok(UninitSlice::Raw(unsafe { RawMemory::new(buf.cast(), len) }))
}
