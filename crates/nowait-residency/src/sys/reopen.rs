//! Opening the file of a descriptor again, by way of /proc/thread-self/fd (proc_pid_fd(5), Linux
//! 3.17).
//!
//! The kernel follows such a link to the file itself and resolves no path. The directory is that of
//! the thread: a thread may have a descriptor table of its own, and /proc/self is of no use after
//! the first thread has ended.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Access, CWD, Mode, OFlags};
use rustix::path::DecInt;

use super::Errno;

/// The calling thread's descriptors. A thread that opens many files again opens the directory once.
#[derive(Debug)]
pub struct Descriptors(Option<OwnedFd>);

impl Descriptors {
    /// For a single file: nothing is opened before.
    pub const fn of_this_thread() -> Descriptors {
        Descriptors(None)
    }

    /// Opens the directory. The value is of no use in another thread.
    pub fn open() -> Descriptors {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Descriptors(rustix::fs::open(DIRECTORY, flags, Mode::empty()).ok())
    }

    /// Opens the file of `fd` again, with these flags of open(2) and with its own position. `fd`
    /// may be an O_PATH descriptor. The kernel checks the permissions of the file again.
    ///
    /// Without O_NONBLOCK it waits for a lease of the file to be given up (fcntl(2)).
    pub fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        match &self.0 {
            Some(directory) => {
                rustix::fs::openat(directory, DecInt::from_fd(fd), flags, Mode::empty())
            }
            None => {
                let path = format!("{DIRECTORY}/{}", fd.as_raw_fd());
                rustix::fs::openat(CWD, path, flags, Mode::empty())
            }
        }
    }

    /// Returns true if [`reopen`](Descriptors::reopen) has failed with this error because /proc is
    /// not mounted or may not be used.
    pub fn are_missing(&self, errno: Errno) -> bool {
        matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::ACCESS)
            && self.0.is_none()
            && rustix::fs::access(DIRECTORY, Access::EXISTS).is_err()
    }
}

const DIRECTORY: &str = "/proc/thread-self/fd";

/// Opens the file of `fd` again for reading, without waiting for a lease.
pub fn reopen(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    Descriptors::of_this_thread().reopen(fd, OFlags::RDONLY | OFlags::NONBLOCK)
}
