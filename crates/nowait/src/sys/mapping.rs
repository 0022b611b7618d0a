//! A range of addresses for a mapped file. Its windows are mapped, locked, copied and unmapped one by one.
#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};

use rustix::io::pread;
use rustix::mm::{
    Advice, MapFlags, MlockFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mlock_with, mmap,
    mmap_anonymous, mprotect, mremap_fixed, munmap,
};

use super::Errno;

/// Regions of this size or more begin at a multiple of it, so that the kernel can use huge pages.
const ALIGNMENT: usize = 2 << 20;

/// A reserved range of addresses. No page of it can be accessed until a window is mapped.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    len: usize,
    /// All of the range, before and after the alignment.
    reserved: (NonNull<u8>, usize),
}

// SAFETY: the region is only addresses. Each function that gives access to memory states its own rules.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `len` bytes of address space, a multiple of the page size.
    pub(crate) fn reserve(len: usize) -> Result<Region, Errno> {
        if cfg!(miri) {
            return Err(Errno::NOSYS);
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let spare = if len < ALIGNMENT { 0 } else { ALIGNMENT };
        let all = len.checked_add(spare).ok_or(Errno::NOMEM)?;
        // SAFETY: a new mapping at an address that the kernel chooses aliases no other memory.
        let first = unsafe { mmap_anonymous(null_mut(), all, ProtFlags::empty(), flags)? };
        let first = NonNull::new(first.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let before = first.as_ptr().align_offset(ALIGNMENT).min(spare);
        // SAFETY: at most the spare bytes.
        let start = unsafe { first.add(before) };
        Ok(Region {
            start,
            len,
            reserved: (first, all),
        })
    }

    /// The first address.
    #[inline]
    pub(crate) fn start(&self) -> *const u8 {
        self.start.as_ptr()
    }

    fn at(&self, range: &Range<usize>) -> Result<*mut libc::c_void, Errno> {
        if range.start > range.end || range.end > self.len {
            return Err(Errno::INVAL);
        }
        // SAFETY: within the region, as checked.
        Ok(unsafe { self.start.as_ptr().add(range.start) }.cast())
    }

    /// Maps the same range of a file there, without reading it.
    ///
    /// # Safety
    /// Nothing refers to memory of this range.
    pub(crate) unsafe fn map(&self, fd: BorrowedFd<'_>, range: Range<usize>) -> Result<(), Errno> {
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        let at = self.at(&range)?;
        // SAFETY: the range is part of the region, and the caller has no references into it.
        unsafe {
            mmap(
                at,
                range.len(),
                ProtFlags::READ,
                flags,
                fd,
                range.start as u64,
            )
        }
        .map(drop)
    }

    /// Reads a mapped range into memory. Blocks. A file that was truncated is EFAULT, and never SIGBUS:
    /// madvise(2), `MADV_POPULATE_READ` (Linux 5.14).
    pub(crate) fn populate(&self, range: Range<usize>) -> Result<(), Errno> {
        // SAFETY: this advice changes no memory.
        unsafe { madvise(self.at(&range)?, range.len(), Advice::LinuxPopulateRead) }
    }

    /// Locks a range in memory, and reads it first if necessary: mlock2(2).
    pub(crate) fn lock(&self, range: Range<usize>) -> Result<(), Errno> {
        // SAFETY: locking changes no memory.
        unsafe { mlock_with(self.at(&range)?, range.len(), MlockFlags::empty()) }
    }

    /// Unmaps a range and unlocks it. It stays reserved.
    ///
    /// # Safety
    /// Nothing refers to memory of this range.
    pub(crate) unsafe fn unmap(&self, range: Range<usize>) -> Result<(), Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let at = self.at(&range)?;
        // SAFETY: the range is part of the region, and the caller has no references into it.
        unsafe { mmap_anonymous(at, range.len(), ProtFlags::empty(), flags) }.map(drop)
    }

    /// Replaces a mapped range by a private copy of its bytes, which are read with pread(2): a file that is
    /// truncated all the same raises no SIGBUS here. References into the range stay valid: mremap(2) with
    /// `MREMAP_FIXED` exchanges the pages while no thread can access them.
    ///
    /// # Safety
    /// The range of this file is mapped, and nothing changes the file meanwhile.
    pub(crate) unsafe fn replace_by_copy(
        &self,
        fd: BorrowedFd<'_>,
        range: Range<usize>,
    ) -> Result<(), Errno> {
        let len = range.len();
        let at = self.at(&range)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the copy is a new mapping of this length, which only this function knows. It is zeroed
        // memory until its bytes are read. It then replaces the range with the same bytes.
        unsafe {
            let copy = mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE)?;
            let replaced = madvise(copy, len, Advice::LinuxPopulateWrite).and_then(|()| {
                let bytes = std::slice::from_raw_parts_mut(copy.cast::<u8>(), len);
                read_all(fd, bytes, range.start as u64)?;
                mprotect(copy, len, MprotectFlags::READ)?;
                mremap_fixed(copy, len, len, MremapFlags::MAYMOVE, at)
            });
            if let Err(errno) = replaced {
                let _ = munmap(copy, len);
                return Err(errno);
            }
        }
        Ok(())
    }
}

/// Reads up to the end of the file.
fn read_all(fd: BorrowedFd<'_>, mut bytes: &mut [u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match pread(fd, &mut *bytes, offset) {
            Ok(0) => break,
            Ok(n) => {
                bytes = &mut bytes[n..];
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl Drop for Region {
    fn drop(&mut self) {
        let (first, all) = self.reserved;
        // SAFETY: reserved by `reserve`, and unmapped once. References into it do not outlive the region.
        let _ = unsafe { munmap(first.as_ptr().cast(), all) };
    }
}
