//! fsync and fdatasync: what was written reaches the device.

use std::os::fd::AsFd;

use io_uring::{opcode, squeue, types};

use super::operation::{Known, Operation};
use crate::handle::Handle;
use crate::sys::Errno;

/// fsync(2), or fdatasync(2): waits until what was written *before it was submitted and has
/// completed* is on the device, and the device has been told to keep it.
///
/// It covers the writes whose completions the caller has. It does not wait for writes that are still
/// in flight: reap those first, or submit both as a [`Chain`](crate::engine::Chain), which begins the
/// fsync when the write is done. A write with [`RwFlags::DSYNC`](crate::RwFlags::DSYNC) needs none.
#[derive(Debug)]
pub struct Fsync {
    handle: Handle,
    data_only: bool,
}

impl Fsync {
    /// Data and metadata: fsync(2).
    pub fn new(handle: &Handle) -> Fsync {
        Fsync {
            handle: handle.clone(),
            data_only: false,
        }
    }

    /// Data, and the metadata needed to read it back: fdatasync(2).
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

    fn sqe(&mut self, known: &Known<'_>) -> squeue::Entry {
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
