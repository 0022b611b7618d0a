//! fsync and fdatasync: flush written data to the device.

use std::os::fd::AsFd;

use io_uring::{opcode, squeue, types};

use super::operation::{Operation, Registered};
use crate::handle::Handle;
use crate::sys::Errno;

/// Waits until written data is on the device, and the device has been told to flush its cache:
/// fsync(2) or fdatasync(2).
///
/// It covers writes that *completed before it was submitted*. It does not wait for writes that are
/// still in flight. Reap those first. A write with [`RwFlags::DSYNC`](crate::RwFlags::DSYNC) needs
/// no fsync.
#[derive(Debug)]
pub struct Fsync {
    handle: Handle,
    data_only: bool,
}

impl Fsync {
    /// Flushes data and metadata: fsync(2).
    pub fn new(handle: &Handle) -> Fsync {
        Fsync {
            handle: handle.clone(),
            data_only: false,
        }
    }

    /// Flushes data and the metadata needed to read it back: fdatasync(2).
    pub fn data(handle: &Handle) -> Fsync {
        Fsync {
            handle: handle.clone(),
            data_only: true,
        }
    }
}

impl Operation for Fsync {
    const OPCODE: u8 = opcode::Fsync::CODE;
    const NAME: &'static str = "fsync";
    const IN_SLOT: bool = true;

    fn handle(&self) -> Option<&Handle> {
        Some(&self.handle)
    }

    fn sqe(&mut self, known: &Registered<'_>) -> squeue::Entry {
        let flags = if self.data_only {
            types::FsyncFlags::DATASYNC
        } else {
            types::FsyncFlags::empty()
        };
        opcode::Fsync::new(known.fd(&self.handle))
            .flags(flags)
            .build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        if self.data_only {
            rustix::fs::fdatasync(self.handle.as_fd())
        } else {
            rustix::fs::fsync(self.handle.as_fd())
        }
        .map(|()| 0)
    }
}
