//! Faults: byte ranges of the disk where requests fail or get stuck.

use std::ops::Range;

use crate::log::Op;

/// Bytes of the disk where requests fail or stall, until released.
///
/// A request that touches one byte of the range is affected as a whole. Where faults overlap, the
/// one injected first counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: Kind,
    range: Range<u64>,
    reads: bool,
    writes: bool,
}

/// What a request that meets a fault suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Eio,
    Stall,
}

/// A fault in force, for [`SlowDisk::release`](crate::SlowDisk::release).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultId(pub(crate) u64);

impl Fault {
    /// Requests fail with EIO, after the usual latency.
    pub fn eio(range: Range<u64>) -> Self {
        Fault::new(Kind::Eio, range)
    }

    /// Requests are held, each in its place of the disk's queue, until the fault is released; then
    /// they take the usual latency.
    pub fn stall(range: Range<u64>) -> Self {
        Fault::new(Kind::Stall, range)
    }

    /// Writes are left alone.
    pub fn reads_only(mut self) -> Self {
        self.writes = false;
        self
    }

    /// Reads are left alone.
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
