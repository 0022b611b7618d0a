//! The result of the part of a read that runs in the calling thread, and the buffers it fills.
#![allow(unsafe_code)]

use crate::buffer::IoBufMut;
use crate::handle::Handle;
use crate::op::{Op, Read, Route};
use crate::policy::provenance::{Origin, Provenance};
use crate::sys::Errno;
use crate::sys::uninit_slice::UninitSlice;

/// The result of the part of a read that runs in the calling thread.
#[derive(Debug)]
pub(crate) enum Start {
    /// The read is complete, with this number of bytes. It is less than requested only at the end
    /// of the file.
    Done(usize, Provenance),
    /// The engine must read the rest.
    Rest(Rest),
    /// The read failed.
    Failed(Errno),
}

/// The result of the calling thread's part of an operation.
pub(crate) enum CallerResult<T> {
    /// The operation is done, or failed immediately.
    Done(T),
    /// The engine does the operation, or the rest of it, which the operation has recorded.
    Rest(Op),
}

/// The rest of a read, for the engine.
#[derive(Debug)]
pub(crate) struct Rest {
    /// The number of bytes already in the buffer.
    pub(crate) done: usize,
    /// The provenance of those bytes.
    pub(crate) provenance: Provenance,
    /// True if the calling thread tried the page cache for the next byte and did not find it.
    pub(crate) missed: bool,
    /// The bytes of the rest that are in the page cache, if they were counted.
    pub(crate) resident: Option<u32>,
    /// The part of the engine that reads the rest.
    pub(crate) route: Route,
}

impl Rest {
    /// A rest after `done` bytes from the page cache.
    pub(crate) fn of(done: usize, missed: bool, route: Route) -> Rest {
        Rest {
            done,
            provenance: Provenance::of(done, Origin::Cache),
            missed,
            resident: None,
            route,
        }
    }

    /// The operation of the engine that reads the rest.
    pub(crate) fn into_op(self, mut read: Read) -> Op {
        read.advance(self.done);
        let mut op = Op::from(read);
        self.record(&mut op);
        op
    }

    /// Records the rest in the operation that reads it.
    #[inline]
    pub(crate) fn record(&self, op: &mut Op) {
        let progress = &mut op.body.progress;
        progress.route = self.route;
        progress.provenance = self.provenance;
        progress.missed = self.missed;
        progress.resident = self.resident;
    }
}

/// Runs the part of a read into `buffer` that belongs to the calling thread, and marks the bytes it
/// filled.
#[inline]
pub(crate) fn start_into<B: IoBufMut + ?Sized>(
    buffer: &mut B,
    start: impl FnOnce(&mut UninitSlice<'_>) -> Start,
) -> Start {
    let started = start(&mut buffer.as_uninit());
    let filled = match &started {
        Start::Done(n, _) => *n,
        Start::Failed(_) => 0,
        Start::Rest(_) => return started,
    };
    // SAFETY: the kernel wrote this number of bytes through that space.
    unsafe { buffer.set_filled(filled) };
    started
}

/// Fills a buffer with bytes that are in memory, and marks them. `copy` returns their number, or
/// `None` if it wrote nothing.
pub(crate) fn fill(
    buffer: &mut dyn IoBufMut,
    copy: impl FnOnce(&mut UninitSlice<'_>) -> Option<usize>,
) -> Option<usize> {
    let filled = copy(&mut buffer.as_uninit())?;
    // SAFETY: `copy` wrote this number of bytes through that space.
    unsafe { buffer.set_filled(filled) };
    Some(filled)
}

/// Runs the part of a read operation that belongs to the calling thread, and records in the
/// operation the bytes it filled.
#[inline]
pub(crate) fn start_operation(
    read: &mut Read,
    start: impl FnOnce(&Handle, &mut UninitSlice<'_>) -> Start,
) -> Start {
    let started = read.with_space(start);
    match &started {
        // SAFETY: the kernel wrote these bytes through the operation's space.
        Start::Done(n, _) => unsafe { read.fill(*n) },
        // SAFETY: no byte is claimed.
        Start::Failed(_) => unsafe { read.fill(0) },
        Start::Rest(rest) => read.advance(rest.done),
    }
    started
}
