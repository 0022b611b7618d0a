//! cachestat(2) and mincore(2): the residency of a file's pages, without reading any.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;

use super::{Errno, check};

/// `struct cachestat`, in pages (Linux 6.5, cachestat(2)).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cachestat {
    pub cached: u64,
    pub dirty: u64,
    pub writeback: u64,
    pub evicted: u64,
    pub recently_evicted: u64,
}

#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

/// The number of the call is the same on all architectures. libc 0.2 has it for few.
const SYS_CACHESTAT: libc::c_long = 451;

/// cachestat(2) of a byte range. A `len` of 0 means up to the end of the file.
pub fn cachestat(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<Cachestat, Errno> {
    let range = Range { offset, len };
    let mut out = Cachestat::default();
    call(fd.as_raw_fd(), &range, &mut out)?;
    Ok(out)
}

/// The system call. Miri makes none by number.
fn call(fd: RawFd, range: &Range, out: &mut Cachestat) -> Result<usize, Errno> {
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    let (range, out) = (std::ptr::from_ref(range), std::ptr::from_mut(out));
    // SAFETY: both structs have the kernel's layout and are valid during the call.
    check(unsafe { libc::syscall(SYS_CACHESTAT, fd, range, out, 0) })
}

/// The errno of cachestat(2) for an invalid descriptor. EBADF means that the call is available.
pub fn probe_cachestat() -> Errno {
    let range = Range { offset: 0, len: 1 };
    let mut out = Cachestat::default();
    call(-1, &range, &mut out).err().unwrap_or(Errno::IO)
}

/// A part of a file that is mapped only for mincore(2). The memory is never accessed, so a file
/// that shrinks raises no SIGBUS.
pub(crate) struct Mapping {
    addr: NonNull<libc::c_void>,
    len: usize,
}

// SAFETY: the mapping is never dereferenced, and mincore may be called on it from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above. `mincore` takes `&self` and writes only to its argument.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes from the page-aligned `offset` on.
    pub(crate) fn new(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Mapping, Errno> {
        if cfg!(miri) {
            return Err(Errno::NOSYS);
        }
        // SAFETY: a new mapping at an address that the kernel chooses aliases no other memory.
        let addr = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::SHARED | rustix::mm::MapFlags::NORESERVE,
                fd,
                offset,
            )?
        };
        Ok(Mapping {
            addr: NonNull::new(addr).ok_or(Errno::NOMEM)?,
            len,
        })
    }

    /// The length of the mapping in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// mincore(2): bit 0 of each byte of `pages` is set if that page is resident. `start` is a
    /// page-aligned offset into the mapping, and `len` is the number of bytes from there.
    pub(crate) fn mincore(&self, start: usize, len: usize, pages: &mut [u8]) -> Result<(), Errno> {
        let page = crate::sys::process::page_size();
        if start.checked_add(len).is_none_or(|end| end > self.len)
            || pages.len() < len.div_ceil(page)
        {
            return Err(Errno::INVAL);
        }
        // SAFETY: the range is within the mapping, and the vector has a byte for each of its pages.
        check(unsafe {
            libc::mincore(self.addr.as_ptr().byte_add(start), len, pages.as_mut_ptr())
                as libc::c_long
        })?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` and unmapped once. There are no references into it.
        let _ = unsafe { rustix::mm::munmap(self.addr.as_ptr(), self.len) };
    }
}
