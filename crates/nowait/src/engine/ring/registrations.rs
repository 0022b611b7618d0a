//! What one ring was told of beforehand: the files of a set, the memory of pools.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use io_uring::IoUring;

use crate::buffer::BufferPool;
use crate::engine::features::{Feature, Features};
use crate::op::{Kind, Known};
use crate::registered::Table;

pub(super) struct Registered {
    files: Option<Arc<Table>>,
    /// Which memory is registered, and as which number.
    memory: Vec<(Range<usize>, u16)>,
    /// Whose memory that is: mapped as long as the ring is there.
    _pools: Vec<BufferPool>,
}

impl Registered {
    /// Registers the memory of pools: all of it or none.
    pub(super) fn new(ring: &IoUring, pools: &[BufferPool], features: &mut Features) -> Registered {
        let memory = if pools.is_empty() {
            None
        } else {
            features.tried(Feature::RegisteredBuffers, memory(ring, pools))
        };
        Registered {
            files: None,
            memory: memory.unwrap_or_default(),
            _pools: pools.to_vec(),
        }
    }

    /// Registers room for the files of a set.
    pub(super) fn files(&mut self, ring: &IoUring, table: &Arc<Table>) -> io::Result<()> {
        ring.submitter().register_files_sparse(table.capacity())?;
        self.files = Some(table.clone());
        Ok(())
    }

    /// Applies what has changed among the files.
    pub(super) fn refresh(&self, ring: &IoUring) {
        if let Some(table) = self.files.as_ref().filter(|table| table.has_changed()) {
            table.apply(&ring.submitter());
        }
    }

    /// What the ring knows an operation's file and memory by.
    pub(super) fn known(&self, kind: &Kind) -> Known<'_> {
        let slot = self.files.as_ref().and_then(|table| {
            let slot = kind.slot()?;
            slot.number(table)
        });
        Known {
            slot,
            memory: &self.memory,
        }
    }

    /// The ring is about to go.
    pub(super) fn close(&self) {
        if let Some(table) = &self.files {
            table.close();
        }
    }
}

/// Registers all pieces of the pools' memory, numbered as they come.
fn memory(ring: &IoUring, pools: &[BufferPool]) -> io::Result<Vec<(Range<usize>, u16)>> {
    let memory: Vec<_> = pools
        .iter()
        .flat_map(BufferPool::pieces)
        .zip(0u16..)
        .collect();
    let iovecs: Vec<_> = memory
        .iter()
        .map(|(piece, _)| libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(piece.start),
            iov_len: piece.len(),
        })
        .collect();
    // SAFETY: the memory is mapped as long as its pools are there, which `Registered` holds as long
    // as the ring; what the kernel writes to it is what operations own.
    unsafe { ring.submitter().register_buffers(&iovecs)? };
    Ok(memory)
}
