//! A mapping of shared memory.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

use rustix::fs::{
    CWD, MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, openat,
};
use rustix::io::{Errno, Result, pread};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::path::{Arg, DecInt};
use rustix::process::{Resource, getrlimit};

/// A value in shared memory. All bit patterns of `T` must be valid, and all its fields atomic.
#[derive(Debug)]
pub(crate) struct Shared<T>(NonNull<T>);

// SAFETY: the value consists of atomics.
unsafe impl<T: Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Creates the memory, with all bytes zero, and a descriptor for it. Its size cannot be
    /// changed.
    ///
    /// Beyond the limit of file sizes (RLIMIT_FSIZE), ftruncate(2) would send a signal that ends
    /// this process.
    pub(crate) fn create() -> Result<(Shared<T>, OwnedFd)> {
        let limit = getrlimit(Resource::Fsize).current;
        if limit.is_some_and(|limit| limit < size_of::<T>() as u64) {
            return Err(Errno::FBIG);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("nowait-ahead", flags)?;
        ftruncate(&fd, size_of::<T>() as u64)?;
        fcntl_add_seals(&fd, SEALS)?;
        Ok((Shared::map(&fd)?, fd))
    }

    /// Maps the memory that another process has created, and that begins with `key`.
    ///
    /// The path is `/proc/PID/fd/N`. If that process has ended, it may be that of another process,
    /// and any file. So the path is opened with O_PATH, which has no effect on a device or a FIFO.
    /// Only a file that has been found to be the memory is opened for writing. The key is known to
    /// this memory alone, which was sealed: it cannot shrink, which would kill the program with
    /// SIGBUS.
    ///
    /// All calls are of those by which ld.so(8) loads a library: a program may be started with a
    /// filter of its calls.
    pub(crate) fn attach(path: &Path, key: u64) -> Result<Shared<T>> {
        let found = Opened::at(CWD, path, OFlags::PATH)?;
        let stat = fstat(&found)?;
        // A memfd has no name.
        let is_memory = stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_nlink == 0;
        if !is_memory || stat.st_size != size_of::<T>() as i64 {
            return Err(Errno::INVAL);
        }
        let descriptors = Opened::at(CWD, "/proc/self/fd", OFlags::PATH | OFlags::DIRECTORY)?;
        let reopen = |flags| {
            let number = DecInt::from_fd(&found);
            Opened::at(&descriptors, number, flags | OFlags::NONBLOCK)
        };
        let mut start = [0; 8];
        let read = pread(&reopen(OFlags::RDONLY)?, &mut start, 0)?;
        if read != start.len() || u64::from_ne_bytes(start) != key {
            return Err(Errno::INVAL);
        }
        Shared::map(&reopen(OFlags::RDWR)?)
    }

    fn map(fd: impl AsFd) -> Result<Shared<T>> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: the kernel chooses an address that is free.
        let start = unsafe { mmap(null, size_of::<T>(), protection, MapFlags::SHARED, fd, 0)? };
        NonNull::new(start.cast()).map(Shared).ok_or(Errno::NOMEM)
    }
}

/// A file that is open for a moment. It is opened by openat(2), and closed by close(2) alone: in
/// debug builds, the standard library also asks for the flags of a descriptor that it closes.
pub(crate) struct Opened(ManuallyDrop<OwnedFd>);

impl Opened {
    pub(crate) fn at(directory: impl AsFd, path: impl Arg, flags: OFlags) -> Result<Opened> {
        let fd = openat(directory, path, flags | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Opened(ManuallyDrop::new(fd)))
    }
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's, which has no other use any more.
        unsafe { rustix::io::close(self.0.as_raw_fd()) };
    }
}

/// fstat(3) as the C library makes it, by one system call or another.
fn fstat(fd: &Opened) -> Result<libc::stat> {
    // SAFETY: all bytes zero are a struct stat.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the call fills the struct.
    match unsafe { libc::fstat(fd.0.as_raw_fd(), &raw mut stat) } {
        0 => Ok(stat),
        _ => Err(Errno::INVAL),
    }
}

/// The seals of the memory; see fcntl(2).
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

impl<T> std::ops::Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping lives as long as this value, is aligned to a page, and every content
        // is valid.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: this value has mapped it, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}
