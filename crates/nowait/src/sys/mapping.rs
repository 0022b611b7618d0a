//! A file in memory: mmap(2). Its windows are opened, locked, copied and closed one by one.
//!
//! The file is mapped once, and its addresses belong to it until it is unmapped as a whole. A
//! window is opened and closed by mprotect(2), which leaves no hole if it fails. mmap(2) with
//! `MAP_FIXED` does leave one, and the kernel puts there what another thread maps.
#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::pread;
use rustix::mm::{
    Advice, MapFlags, MlockFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mlock_with, mmap,
    mmap_anonymous, mprotect, mremap, mremap_fixed, munlock, munmap,
};

use super::Errno;
use super::process::page_size;

/// A mapped file. No page of it can be accessed until a window is opened.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    len: usize,
    /// The kernel may have left a hole, in which another part of the program may have memory now.
    torn: AtomicBool,
}

// SAFETY: the region is only addresses. Each function that gives access to memory states its own
// rules.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// The reason why a range was not replaced by a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotReplaced {
    /// Nothing has changed.
    Kept,
    /// mremap(2) failed, which may have left a hole. The range must not be used again.
    Torn,
}

impl From<Errno> for NotReplaced {
    fn from(_: Errno) -> NotReplaced {
        NotReplaced::Kept
    }
}

/// Mappings that the library can give up at once. The number of mappings of a process is limited
/// (`vm.max_map_count`). mremap(2) fails if there is not room for six more: with `MREMAP_FIXED`, and in Linux 7.2 also if it
/// moves nothing.
#[derive(Debug)]
pub(crate) struct Spare {
    start: NonNull<libc::c_void>,
    pages: usize,
}

impl Spare {
    /// More than are needed: other threads may make mappings after these are given up.
    const COUNT: usize = 32;

    /// Maps pages. Each is a mapping, because its neighbours have another protection.
    ///
    /// # Errors
    /// ENOMEM if the process may not have half of them.
    pub(crate) fn new() -> Result<Spare, Errno> {
        let (pages, page) = (Spare::COUNT, page_size());
        let access = ProtFlags::empty();
        // SAFETY: a new mapping at an address that the kernel chooses aliases no other memory.
        let start = unsafe { mmap_anonymous(null_mut(), pages * page, access, MapFlags::PRIVATE)? };
        let start = NonNull::new(start).ok_or(Errno::NOMEM)?;
        let spare = Spare { start, pages };
        for n in (1..pages).step_by(2) {
            // SAFETY: a page of the mapping that was just made. Nothing accesses it.
            let divided =
                unsafe { mprotect(start.as_ptr().byte_add(n * page), page, MprotectFlags::READ) };
            if n < pages / 2 {
                divided?;
            }
        }
        Ok(spare)
    }

    /// Gives up one mapping.
    fn give_up_one(&mut self) {
        let page = page_size();
        let last = (self.pages - 1) * page;
        // SAFETY: the last page that remains. Nothing accesses it.
        let given_up = unsafe { munmap(self.start.as_ptr().byte_add(last), page) };
        self.pages -= usize::from(given_up.is_ok());
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        // SAFETY: the pages are mapped, and unmapped once. Nothing accesses them.
        let _ = unsafe { munmap(self.start.as_ptr(), self.pages * page_size()) };
    }
}

impl Region {
    /// Maps `len` bytes of a file, a multiple of the page size, at addresses that the kernel
    /// chooses. For filesystems with huge pages it aligns them (Linux 5.18). Nothing is read, also
    /// after mlockall(2).
    pub(crate) fn map(fd: BorrowedFd<'_>, len: usize) -> Result<Region, Errno> {
        if cfg!(miri) {
            return Err(Errno::NOSYS);
        }
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses aliases no other memory.
        let start = unsafe { mmap(null_mut(), len, ProtFlags::empty(), flags, fd, 0)? };
        Ok(Region {
            start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?,
            len,
            torn: AtomicBool::new(false),
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

    /// Allows to read a range of this file and reads it into memory. Blocks. A file that was
    /// truncated is EFAULT, and never SIGBUS: madvise(2), `MADV_POPULATE_READ` (Linux 5.14). If the
    /// device fails, that call repeats the read without end before Linux 6.9, so pread(2) makes it
    /// first.
    pub(crate) fn populate(&self, fd: BorrowedFd<'_>, range: Range<usize>) -> Result<(), Errno> {
        let at = self.at(&range)?;
        read_through(fd, &range)?;
        // SAFETY: the range is part of the region, and none is torn before it was populated.
        // Neither call changes memory.
        unsafe {
            mprotect(at, range.len(), MprotectFlags::READ)?;
            madvise(at, range.len(), Advice::LinuxPopulateRead)
        }
    }

    /// Locks a range in memory, and reads it first if necessary: mlock2(2).
    pub(crate) fn lock(&self, range: Range<usize>) -> Result<(), Errno> {
        // SAFETY: locking changes no memory.
        unsafe { mlock_with(self.at(&range)?, range.len(), MlockFlags::empty()) }
    }

    /// Unlocks a range, and drops what it has in memory. It stays mapped, and cannot be accessed.
    ///
    /// # Safety
    /// Nothing refers to memory of this range, and it is not torn.
    ///
    /// # Errors
    /// The memory is still locked.
    pub(crate) unsafe fn close(&self, range: Range<usize>) -> Result<(), Errno> {
        let at = self.at(&range)?;
        // SAFETY: the range is part of the region, and the caller has no references into it.
        unsafe {
            munlock(at, range.len())?;
            // The memory is no longer locked, so an error does not matter: the kernel can take it.
            let _ = madvise(at, range.len(), Advice::LinuxDontNeed);
            let _ = mprotect(at, range.len(), MprotectFlags::empty());
        }
        Ok(())
    }

    /// Replaces an open range by a private copy of its bytes, which are read with pread(2): a file
    /// that is truncated all the same raises no SIGBUS here. References into the range stay valid:
    /// mremap(2) with `MREMAP_FIXED` exchanges the pages while no thread can access them.
    ///
    /// That call removes the range before it moves the copy there. It may fail before or after
    /// that, and does not tell. It fails if the kernel has no memory for its own structures, or if
    /// the process has too many mappings: so the spare ones are given up just before. No other call
    /// exchanges the pages.
    ///
    /// # Safety
    /// The range of this file is open and not torn, and nothing changes the file meanwhile.
    pub(crate) unsafe fn replace_by_copy(
        &self,
        fd: BorrowedFd<'_>,
        range: Range<usize>,
        mut spare: Spare,
    ) -> Result<(), NotReplaced> {
        let len = range.len();
        let at = self.at(&range)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // For the copy.
        spare.give_up_one();
        // SAFETY: the copy is a new mapping of this length, which only this function knows. It is
        // zeroed memory until its bytes are read. It then replaces the range with the same bytes.
        unsafe {
            let copy = mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE)?;
            let made = madvise(copy, len, Advice::LinuxPopulateWrite).and_then(|()| {
                let bytes = std::slice::from_raw_parts_mut(copy.cast::<u8>(), len);
                read_all(fd, bytes, range.start as u64)?;
                mprotect(copy, len, MprotectFlags::READ)?;
                drop(spare);
                // It moves nothing, and fails if a sandbox denies mremap(2).
                mremap(copy, len, len, MremapFlags::MAYMOVE)
            });
            let replaced = made.map_err(NotReplaced::from).and_then(|copy| {
                mremap_fixed(copy, len, len, MremapFlags::MAYMOVE, at).map_err(|_| {
                    self.torn.store(true, Ordering::Release);
                    NotReplaced::Torn
                })
            });
            if let Err(error) = replaced {
                // mremap(2) moved nothing: the copy is where it was.
                let _ = munmap(copy, len);
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Reads a range of a file into the page cache, up to the end of the file.
fn read_through(fd: BorrowedFd<'_>, range: &Range<usize>) -> Result<(), Errno> {
    let mut buf = vec![0; range.len().min(128 << 10)];
    for at in range.clone().step_by(buf.len().max(1)) {
        match read_all(fd, &mut buf, at as u64) {
            // With O_DIRECT, where the page cache is not used and the buffer may not be aligned.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
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
        // The addresses of a torn region are given up.
        if !*self.torn.get_mut() {
            // SAFETY: mapped by `map`, and unmapped once. References into it do not outlive the
            // region.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}
