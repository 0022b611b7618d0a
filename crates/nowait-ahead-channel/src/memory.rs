//! A mapping of shared memory.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

use rustix::fs::{
    FileType, MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat,
    ftruncate, memfd_create, open, openat,
};
use rustix::io::{Errno, Result, pread};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::path::DecInt;

/// A value in shared memory. All bit patterns of `T` must be valid, and all its fields atomic.
#[derive(Debug)]
pub(crate) struct Shared<T>(NonNull<T>);

// SAFETY: the value consists of atomics.
unsafe impl<T: Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Creates the memory, with all bytes zero, and a descriptor for it. Its size cannot be changed.
    pub(crate) fn create() -> Result<(Shared<T>, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("nowait-ahead", flags)?;
        ftruncate(&fd, size_of::<T>() as u64)?;
        fcntl_add_seals(&fd, SEALS)?;
        Ok((Shared::map(&fd)?, fd))
    }

    /// Maps the memory that another process has created, and that begins with `key`.
    ///
    /// The path is `/proc/PID/fd/N`. If that process has ended, it may be that of another process, and any file. So the path is
    /// opened with O_PATH, which has no effect on a device or a FIFO. Only a file that has been found to be the memory is
    /// opened for writing.
    pub(crate) fn attach(path: &Path, key: u64) -> Result<Shared<T>> {
        let found = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&found)?;
        let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        // A memfd has no name.
        if !is_regular || stat.st_nlink != 0 || stat.st_size != size_of::<T>() as i64 {
            return Err(Errno::INVAL);
        }
        let descriptors = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = open("/proc/self/fd", descriptors, Mode::empty())?;
        let reopen = |flags| {
            let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
            openat(&descriptors, DecInt::from_fd(&found), flags, Mode::empty())
        };
        let file = reopen(OFlags::RDONLY)?;
        // Memory that could shrink would kill the program with SIGBUS.
        if !fcntl_get_seals(&file)?.contains(SEALS) {
            return Err(Errno::INVAL);
        }
        let mut start = [0; 8];
        if pread(&file, &mut start, 0)? != 8 || u64::from_ne_bytes(start) != key {
            return Err(Errno::INVAL);
        }
        Shared::map(reopen(OFlags::RDWR)?)
    }

    fn map(fd: impl AsFd) -> Result<Shared<T>> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: the kernel chooses an address that is free.
        let start = unsafe { mmap(null, size_of::<T>(), protection, MapFlags::SHARED, fd, 0)? };
        NonNull::new(start.cast()).map(Shared).ok_or(Errno::NOMEM)
    }
}

/// The seals of the memory; see fcntl(2).
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

impl<T> std::ops::Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping lives as long as this value, is aligned to a page, and every content is valid.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: this value has mapped it, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}
