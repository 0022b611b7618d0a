//! Faults: byte ranges of the disk where requests fail or stall.

use std::ops::Range;

use crate::log::Op;

/// A byte range of the disk where requests fail or stall until the fault is released.
///
/// A request that touches a byte of the range is affected as a whole. If faults overlap, the one
/// that was injected first applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: Kind,
    range: Range<u64>,
    reads: bool,
    writes: bool,
}

/// The effect of a fault on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Eio,
    Stall,
}

/// The identifier of an injected fault, for [`SlowDisk::release`](crate::SlowDisk::release).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultId(pub(crate) u64);

impl Fault {
    /// A fault that makes requests fail with EIO after the usual latency.
    pub fn eio(range: Range<u64>) -> Self {
        Fault::new(Kind::Eio, range)
    }

    /// A fault that stalls requests until it is released. They then take the usual latency. A
    /// stalled request occupies a place of the disk's queue.
    pub fn stall(range: Range<u64>) -> Self {
        Fault::new(Kind::Stall, range)
    }

    /// Restricts the fault to reads.
    pub fn reads_only(mut self) -> Self {
        self.writes = false;
        self
    }

    /// Restricts the fault to writes.
    pub fn writes_only(mut self) -> Self {
        self.reads = false;
        self
    }

    fn new(kind: Kind, range: Range<u64>) -> Self {
        Fault {
            kind,
            range,
            reads: true,
            writes: true,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn touches(&self, op: Op, offset: u64, len: u64) -> bool {
        let concerned = match op {
            Op::Read => self.reads,
            Op::Write => self.writes,
        };
        concerned && offset < self.range.end && self.range.start < offset.saturating_add(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_is_by_the_byte() {
        let fault = Fault::eio(4096..8192).reads_only();
        assert!(fault.touches(Op::Read, 4095, 2));
        assert!(fault.touches(Op::Read, 8191, 1));
        assert!(!fault.touches(Op::Read, 0, 4096));
        assert!(!fault.touches(Op::Read, 8192, 4096));
        assert!(!fault.touches(Op::Write, 4096, 4096));
    }
}
