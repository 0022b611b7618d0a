//! Checks of a descriptor before a request is submitted.

use std::os::fd::{BorrowedFd, RawFd};

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::request::Opcode;

/// The flags of an open file. EBADF for a number that is not a descriptor.
pub fn file_flags(fildes: RawFd) -> Result<OFlags, Errno> {
    if fildes < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the number may be anything: the call fails with EBADF if it is not a descriptor.
    rustix::fs::fcntl_getfl(unsafe { BorrowedFd::borrow_raw(fildes) })
}

/// The flags of an open file that allows this operation. EBADF for any other number.
pub fn file_flags_for(fildes: RawFd, opcode: Opcode) -> Result<OFlags, Errno> {
    let flags = file_flags(fildes)?;
    let access = flags & OFlags::RWMODE;
    let is_allowed = match opcode {
        Opcode::Read => access != OFlags::WRONLY,
        Opcode::Write => access != OFlags::RDONLY,
        Opcode::Sync | Opcode::DataSync => true,
    };
    if is_allowed && !flags.contains(OFlags::PATH) {
        Ok(flags)
    } else {
        Err(Errno::BADF)
    }
}

/// EBADF for a synchronisation of a number that is not a descriptor. EINVAL for one of a pipe or a
/// socket, which would wait for the requests before it, and then fail.
pub fn check_sync(fildes: RawFd, opcode: Opcode) -> Result<(), Errno> {
    if opcode.is_transfer() {
        return Ok(());
    }
    file_flags(fildes)?;
    // SAFETY: as in `file_flags`.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fildes) })?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::Socket => Err(Errno::INVAL),
        _ => Ok(()),
    }
}
