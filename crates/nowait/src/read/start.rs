//! The result of the caller's part of a read, and the buffers that it fills.
#![allow(unsafe_code)]

use crate::buffer::IoBufMut;
use crate::handle::Handle;
use crate::op::Read;
use crate::provenance::{Origin, Provenance};
use crate::space::Space;
use crate::sys::Errno;

/// What came of the caller's part of a read.
#[derive(Debug)]
pub(crate) enum Start {
    /// All of it: so many bytes, fewer than asked only at the end of the file.
    Done(usize, Provenance),
    /// The rest is the engine's.
    Rest(Rest),
    /// It can't be done.
    Failed(Errno),
}

/// What is left of a read for the engine.
#[derive(Debug)]
pub(crate) struct Rest {
    /// How many bytes are in the buffer already.
    pub(crate) done: usize,
    /// Where those came from.
    pub(crate) provenance: Provenance,
    /// Whether the caller looked for the next byte in the page cache and did not find it.
    pub(crate) missed: bool,
    /// The bytes of the rest that are in the page cache, if they were counted.
    pub(crate) resident: Option<u32>,
    /// Who is to do it.
    pub(crate) route: Route,
}

impl Rest {
    /// A rest after `done` bytes of the page cache.
    pub(crate) fn of(done: usize, missed: bool, route: Route) -> Rest {
        Rest {
            done,
            provenance: Provenance::of(done, Origin::Cache),
            missed,
            resident: None,
            route,
        }
    }
}

/// Which part of an engine is to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The ring, where there is one.
    Ring,
    /// A worker in any case: a large copy.
    Worker,
}

/// Has the read path do the caller's part of a read into `buffer`, and marks what it filled.
pub(crate) fn start_into(
    buffer: &mut dyn IoBufMut,
    start: impl FnOnce(&mut Space<'_>) -> Start,
) -> Start {
    let started = start(&mut buffer.space());
    let filled = match &started {
        Start::Done(n, _) => *n,
        Start::Failed(_) => 0,
        Start::Rest(_) => return started,
    };
    // SAFETY: "done" says how many bytes the kernel wrote through that space.
    unsafe { buffer.set_filled(filled) };
    started
}

/// Runs the caller's part of a read operation, and records in the operation what it filled.
#[inline]
pub(crate) fn start_operation(
    read: &mut Read,
    start: impl FnOnce(&Handle, &mut Space<'_>) -> Start,
) -> Start {
    let started = read.with_space(start);
    match &started {
        // SAFETY: the kernel wrote these bytes through the operation's space.
        Start::Done(n, _) => unsafe { read.fill(*n) },
        // SAFETY: no byte is claimed.
        Start::Failed(_) => unsafe { read.fill(0) },
        Start::Rest(rest) => read.have(rest.done),
    }
    started
}
