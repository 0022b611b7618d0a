//! sync_file_range: written pages of a range go to the device.

use std::os::fd::AsFd;

use io_uring::{opcode, squeue};

use super::operation::{Known, Operation};
use crate::handle::Handle;
use crate::sys::{self, Errno};

bitflags::bitflags! {
    /// What [`SyncFileRange`] does, in this order (sync_file_range(2)).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SyncRange: u32 {
        /// Waits for writeback that is on its way already.
        const WAIT_BEFORE = 1;
        /// Begins writeback of what is dirty.
        const WRITE = 2;
        /// Waits for it.
        const WAIT_AFTER = 4;
    }
}

/// Writes a range of dirty pages back: sync_file_range(2) (2.6.17; on the ring 5.2).
///
/// This is about pacing writeback, **not about safety**: it writes no metadata and does not flush the
/// device's own cache, so what it wrote may be gone after a power cut. [`Fsync`](super::Fsync) is what
/// makes data durable.
#[derive(Debug)]
pub struct SyncFileRange {
    handle: Handle,
    offset: u64,
    len: u64,
    what: SyncRange,
}

impl SyncFileRange {
    /// `len` bytes from `offset` on; 0 means "to the end of the file".
    pub fn new(handle: &Handle, offset: u64, len: u64, what: SyncRange) -> SyncFileRange {
        SyncFileRange {
            handle: handle.clone(),
            offset,
            len,
            what,
        }
    }

    /// Whether the ring's 32-bit length can say it.
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

    fn sqe(&mut self, known: &Known<'_>) -> squeue::Entry {
        // A longer range is given to a worker.
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
