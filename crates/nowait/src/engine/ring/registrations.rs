//! The files and the memory that are registered with one ring.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use io_uring::IoUring;

use crate::buffer::BufferPool;
use crate::engine::features::{Feature, Features};
use crate::handle::registered::Table;
use crate::op::{Kind, Registered};

pub(super) struct Registrations {
    files: Option<Arc<Table>>,
    /// The registered memory, with the number of each buffer.
    memory: Vec<(Range<usize>, u16)>,
    /// The pools of that memory. It stays mapped as long as the ring exists.
    _pools: Vec<BufferPool>,
}

impl Registrations {
    /// Registers the memory of the pools: all of it or none.
    pub(super) fn new(
        ring: &IoUring,
        pools: &[BufferPool],
        features: &mut Features,
    ) -> Registrations {
        let memory = if pools.is_empty() {
            None
        } else {
            features.tried(Feature::RegisteredBuffers, memory(ring, pools))
        };
        Registrations {
            files: None,
            memory: memory.unwrap_or_default(),
            _pools: pools.to_vec(),
        }
    }

    /// Registers a table for the files of a set.
    pub(super) fn files(&mut self, ring: &IoUring, table: &Arc<Table>) -> io::Result<()> {
        ring.submitter().register_files_sparse(table.capacity())?;
        self.files = Some(table.clone());
        Ok(())
    }

    /// Applies changes in the set of files.
    #[inline]
    pub(super) fn refresh(&self, ring: &IoUring) {
        if let Some(table) = self.files.as_ref().filter(|table| table.has_changed()) {
            apply(table, ring);
        }
    }

    /// The registered file and memory that the ring has for an operation.
    #[inline]
    pub(super) fn of(&self, kind: &Kind) -> Registered<'_> {
        let slot = self.files.as_ref().and_then(|table| {
            let handle = kind.handle().filter(|_| kind.in_slot())?;
            handle.slot()?.number(table)
        });
        Registered {
            slot,
            memory: &self.memory,
        }
    }

    /// Closes the table, before the ring is dropped.
    pub(super) fn close(&self) {
        if let Some(table) = &self.files {
            table.close();
        }
    }
}

#[cold]
fn apply(table: &Table, ring: &IoUring) {
    table.apply(&ring.submitter());
}

/// Registers all pieces of the pools' memory, numbered in order.
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
    // SAFETY: the memory is mapped as long as its pools exist. `Registrations` holds them as long
    // as the ring exists. The kernel writes only to memory that operations own.
    unsafe { ring.submitter().register_buffers(&iovecs)? };
    Ok(memory)
}
