//! close: closes a descriptor.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use io_uring::{opcode, squeue, types};
use rustix::fs::FileType;

use super::operation::{Operation, Registered, Step};
use crate::kernel::filesystem::Filesystem;
use crate::sys::{self, Errno};

/// Closes a descriptor: close(2). Some filesystems report write errors only here.
///
/// It takes ownership of the descriptor. A descriptor that operations still use cannot be closed
/// ([`Handle::into_fd`](crate::Handle::into_fd)).
#[derive(Debug)]
pub struct Close {
    fd: Option<OwnedFd>,
    at_once: bool,
}

impl Close {
    /// Closes this descriptor.
    pub fn new(fd: OwnedFd) -> Close {
        let at_once = closes_at_once(fd.as_fd());
        Close {
            fd: Some(fd),
            at_once,
        }
    }

    /// Returns true if it waits for no peer and no server.
    pub(crate) fn closes_at_once(&self) -> bool {
        self.at_once
    }
}

/// Returns true if close(2) waits for no peer and no server: the descriptor is a regular file on a
/// known filesystem of a block device. A socket may linger (socket(7)). FUSE and NFS flush data to
/// a server. Other rings return EBADF for the descriptor of a ring.
fn closes_at_once(fd: BorrowedFd<'_>) -> bool {
    let known = |(kind, device)| kind == FileType::RegularFile && Filesystem::opens_at_once(device);
    sys::stat::kind_and_device(fd).is_ok_and(known)
}

impl Operation for Close {
    const OPCODE: u8 = opcode::Close::CODE;
    const NAME: &'static str = "close";

    fn sqe(&mut self, _: &Registered<'_>) -> squeue::Entry {
        let raw = self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        opcode::Close::new(types::Fd(raw)).build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        let fd = self.fd.take().ok_or(Errno::BADF)?;
        // SAFETY: this value owned the descriptor, and gives up its ownership here.
        match unsafe { libc::close(fd.into_raw_fd()) } {
            0 => Ok(0),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        }
    }

    fn settle(&mut self, result: Result<usize, Errno>) -> Step {
        match result {
            // The close never began: the descriptor is still owned, and dropping it closes it.
            Err(Errno::CANCELED) => {}
            // After any other result the descriptor is closed, even after an error (close(2)).
            _ => {
                let _ = self.fd.take().map(IntoRawFd::into_raw_fd);
            }
        }
        Step::Done(result)
    }
}
