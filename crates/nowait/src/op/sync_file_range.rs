//! sync_file_range: writes dirty pages of a range to the device.

use std::os::fd::AsFd;

use io_uring::{opcode, squeue};

use super::operation::{Operation, Registered};
use crate::handle::Handle;
use crate::sys::{self, Errno};

bitflags::bitflags! {
    /// The steps of [`SyncFileRange`], in this order (sync_file_range(2)).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SyncRange: u32 {
        /// Waits for writeback that is already in progress.
        const WAIT_BEFORE = 1;
        /// Starts writeback of dirty pages.
        const WRITE = 2;
        /// Waits for that writeback.
        const WAIT_AFTER = 4;
    }
}

/// Writes a range of dirty pages to the device: sync_file_range(2) (Linux 2.6.17, on the ring 5.2).
///
/// It serves to control writeback, **not to make data durable**. It writes no metadata and does not
/// flush the device's cache, so the data may be lost at a power cut. Use [`Fsync`](super::Fsync) to
/// make data durable.
#[derive(Debug)]
pub struct SyncFileRange {
    handle: Handle,
    offset: u64,
    len: u64,
    what: SyncRange,
}

impl SyncFileRange {
    /// Writes `len` bytes from `offset` on. A length of 0 means up to the end of the file.
    pub fn new(handle: &Handle, offset: u64, len: u64, what: SyncRange) -> SyncFileRange {
        SyncFileRange {
            handle: handle.clone(),
            offset,
            len,
            what,
        }
    }

    /// Returns true if the length fits into the ring's 32 bits.
    pub(crate) fn fits_ring(&self) -> bool {
        u32::try_from(self.len).is_ok()
    }
}

impl Operation for SyncFileRange {
    const OPCODE: u8 = opcode::SyncFileRange::CODE;
    const NAME: &'static str = "sync_file_range";
    const IN_SLOT: bool = true;

    fn handle(&self) -> Option<&Handle> {
        Some(&self.handle)
    }

    fn sqe(&mut self, known: &Registered<'_>) -> squeue::Entry {
        // A worker does longer ranges.
        let len = u32::try_from(self.len).unwrap_or(0);
        opcode::SyncFileRange::new(known.fd(&self.handle), len)
            .offset(self.offset)
            .flags(self.what.bits())
            .build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        sys::rw::sync_file_range(self.handle.as_fd(), self.offset, self.len, self.what.bits())
    }
}
