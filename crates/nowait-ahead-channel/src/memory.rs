//! A mapping of shared memory.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create, open,
};
use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

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
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok((Shared::map(&fd)?, fd))
    }

    /// Maps the memory that another process has created.
    pub(crate) fn attach(path: &Path) -> Result<Shared<T>> {
        let fd = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        // Memory that could shrink would kill the program with SIGBUS.
        if fstat(&fd)?.st_size != size_of::<T>() as i64 {
            return Err(Errno::INVAL);
        }
        if !rustix::fs::fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) {
            return Err(Errno::INVAL);
        }
        Shared::map(&fd)
    }

    fn map(fd: impl AsFd) -> Result<Shared<T>> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: the kernel chooses an address that is free.
        let start = unsafe { mmap(null, size_of::<T>(), protection, MapFlags::SHARED, fd, 0)? };
        NonNull::new(start.cast()).map(Shared).ok_or(Errno::NOMEM)
    }
}

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
